"""Serve an archive over HTTP and batch requests: MODEL=model.archive uvicorn fastapi_service:app"""

import asyncio
import contextlib
import os

import fastapi
import numpy as np

from kerasish.export import load_archive

LARGEST, WAIT = 32, 0.002  # rows of a batch; seconds that the first row waits for others


async def answer(serve, queue):
    """Compute all rows that are in the queue, in batches of one size."""
    while True:
        waiting = [await queue.get()]
        await asyncio.sleep(WAIT)
        while len(waiting) < LARGEST and not queue.empty():
            waiting.append(queue.get_nowait())
        x = np.zeros((LARGEST, *waiting[0][0].shape), "float32")
        x[: len(waiting)] = [row for row, _ in waiting]
        try:
            results = np.asarray(await asyncio.to_thread(serve, x))
        except Exception as error:  # noqa: BLE001 (each request gets it; the service continues)
            results = [error] * len(waiting)
        for (_, future), result in zip(waiting, results, strict=False):
            if not future.cancelled():
                set_ = future.set_exception if isinstance(result, Exception) else future.set_result
                set_(result)


@contextlib.asynccontextmanager
async def lifespan(app):
    """Load the archive, compile it, and start the task that computes."""
    app.state.serve = load_archive(os.environ.get("MODEL", "model.archive")).serve
    app.state.serve(np.zeros((LARGEST, *app.state.serve.input_shapes[0][1:]), "float32"))
    app.state.queue = asyncio.Queue()
    task = asyncio.create_task(answer(app.state.serve, app.state.queue))
    yield
    task.cancel()


app = fastapi.FastAPI(lifespan=lifespan)


@app.post("/predict")
async def predict(request: fastapi.Request) -> list[float]:
    """Return the result of one row, which the request's body holds as JSON."""
    shape = app.state.serve.input_shapes[0][1:]
    try:
        row = np.asarray(await request.json(), "float32")
    except ValueError as error:
        raise fastapi.HTTPException(422, f"expected numbers of shape {shape}") from error
    if row.shape != shape:
        raise fastapi.HTTPException(422, f"expected shape {shape}, got {row.shape}")
    future = asyncio.get_running_loop().create_future()
    app.state.queue.put_nowait((row, future))
    return (await future).tolist()
