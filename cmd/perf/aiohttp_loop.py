# A bare loop over many streams: read, split into events, parse, stamp. It is
# what a benchmark in Python does at the least.
import asyncio, json, sys, time
import aiohttp

events = 0
url, streams, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


async def stream(session, stop):
    global events
    while time.perf_counter() < stop:
        stamps, rest = [], b""
        async with session.post(url, json={"model": "perf", "stream": True, "messages": []}) as answer:
            async for part in answer.content.iter_any():
                now = time.perf_counter()
                *whole, rest = (rest + part).split(b"\n\n")
                for event in whole:
                    data = event.removeprefix(b"data: ")
                    if data == b"[DONE]":
                        continue
                    choices = json.loads(data)["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        stamps.append(now)
                        events += 1
                if now > stop:
                    return


async def main():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        stop = time.perf_counter() + seconds
        await asyncio.gather(*(stream(session, stop) for _ in range(streams)))


begin = time.process_time()
asyncio.run(main())
print(events, time.process_time() - begin)
