"""Times an engine without a server and writes what `tokmark import` reads.

Put your engine in place of `generate`: it yields whenever output appears.
"""

import json
import sys
import time


def generate(prompt, max_tokens):
    for _ in range(max_tokens):
        time.sleep(0.002)
        yield " token"


def measure(prompt, max_tokens):
    # Add "input_tokens" if the engine tells: words are not tokens.
    request = {"start_ns": time.monotonic_ns(), "max_tokens": max_tokens}
    times = []
    try:
        for _ in generate(prompt, max_tokens):
            times.append(time.monotonic_ns())
        # This one yields token by token; if yours does not, count its tokens.
        request.update(token_times_ns=times, output_tokens=len(times), end_ns=time.monotonic_ns())
    except Exception as error:  # a failed request is data too
        request["error"] = str(error)
    return request


if __name__ == "__main__":
    print(json.dumps({"tokmark_offline": 1, "engine": "my-engine 0.3", "model": "my-model"}))
    measure("warm up", 4)
    for prompt in sys.argv[1:] or ["Who are you?", "Tell me a story."]:
        print(json.dumps(measure(prompt, 16)))
