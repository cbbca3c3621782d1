"""Runs llama.cpp's HTTP server until it is interrupted: llamacpp.py MODEL.gguf PORT"""
import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[2])
params.n_parallel, params.n_ctx = 4, 8192
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.endpoint_metrics = True
server = xllamacpp.Server(params)
try:
    threading.Event().wait()
except KeyboardInterrupt:
    pass
