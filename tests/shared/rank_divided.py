"""Checks of an optimizer whose slots the ranks divide: `mpiexec -n 2 python rank_divided.py`.

After `kernels` among the names of checks the ranks divide kernels, too, as `ModelParallel` does;
after `both` each check compares both ways. What is divided ends with the bits of what is not; files
are the same; each continues from the other.
"""

from __future__ import annotations

import copy
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_models as models
from rank_checks import drop_latest, main, shared_folder
from rank_parts import alone, on_first_rank

import kerasish as keras
from kerasish.ranks import Sharding, current_group, set_sharding

opt = keras.optimizers
SHARDS = [4]  # the number of ranks, where that is 3
WAYS = ["whole", "slots"]  # what the checks compare


def divide(way: str) -> None:
    """Cut batches into shards; let the ranks divide slots, or slots and kernels, or nothing."""
    kernels = is_kernel if way == "kernels" else None
    set_sharding(Sharding(current_group(), SHARDS[0], way == "slots", kernels))


def check_slots() -> None:
    """Divide slots in the checks that follow."""
    WAYS[1:] = ["slots"]


def check_kernels() -> None:
    """Divide slots and kernels in the checks that follow."""
    WAYS[1:] = ["kernels"]


def check_both() -> None:
    """Compare both ways in the checks that follow."""
    WAYS[1:] = ["slots", "kernels"]


def is_kernel(path: str) -> bool:
    return path.endswith("kernel")


def compiled(make: Any) -> Any:
    keras.utils.clear_session()  # equal names in files
    model = models.compiled("mlp", optimizer=make())
    model.layers[-1].kernel.constraint = keras.constraints.MaxNorm(0.5)
    if make is excluding:
        model.optimizer.exclude_from_weight_decay(var_list=[model.layers[0].kernel])
    return model


def fit(model: Any, **options: Any) -> Any:
    x, y = models.data(77)
    x[:, 0] *= 300.0  # the gradients of one rank's segment are much larger
    return model.fit(x, y, **{"batch_size": 16, "epochs": 2, "verbose": 0, **options})


def complete_digest(model: Any, history: Any) -> str:
    """Return a digest of weights, whole slots and logs; all ranks call it together."""
    tree = model.get_state_tree(value_format="numpy_array")
    groups = ("trainable_variables", "non_trainable_variables", "optimizer_variables")
    leaves = [leaf for group in groups for leaf in keras.tree.flatten(tree[group])]
    arrays = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves)
    return hashlib.sha256(arrays + repr(history.history).encode()).hexdigest()


def same_bits(kinds: dict[str, Any], backend: str) -> None:
    keras.config.set_backend(backend)
    for name, make in kinds.items():
        found = []
        for way in WAYS:
            divide(way)
            model = compiled(make)
            found.append(complete_digest(model, fit(model)))
            assert (model.optimizer.division is not None) == (way != "whole")
        every = current_group().gather(tuple(found))
        assert len({d for both in every for d in both}) == 1, (backend, name, every)


def excluding() -> Any:
    return opt.AdamW(0.01, weight_decay=0.1)


# The options that read whole gradients or variables.
OPTIONS: dict[str, Any] = {
    "clipnorm": lambda: opt.Adam(0.01, clipnorm=0.1),
    "global_clipnorm": lambda: opt.Adam(0.01, global_clipnorm=0.1),
    "averages": lambda: opt.Adam(0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3),
    "averages at the end": lambda: opt.SGD(0.1, use_ema=True, ema_momentum=0.5),
    "loss scale": lambda: opt.LossScaleOptimizer(
        opt.Adam(0.01, global_clipnorm=0.5), initial_scale=2.0**126, dynamic_growth_steps=3
    ),
    "accumulated": lambda: opt.Adam(
        0.01, gradient_accumulation_steps=2, clipnorm=0.1, loss_scale_factor=4.0
    ),
}
KINDS: dict[str, Any] = {
    "sgd": lambda: opt.SGD(0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda: opt.AdamW(0.01, weight_decay=0.01),
    "excluding": excluding,
    "amsgrad": lambda: opt.Adam(0.01, amsgrad=True, clipvalue=0.01),
    "nadam": lambda: opt.Nadam(0.01),
    "lion": lambda: opt.Lion(0.01),
    "adagrad": lambda: opt.Adagrad(0.1),
    "rmsprop": lambda: opt.RMSprop(0.01, momentum=0.5, centered=True),
    "schedule free": lambda: opt.ScheduleFreeAdamW(0.01),
    "eve": lambda: opt.Eve(0.01),
}


def check_options_eager() -> None:
    """Norms, averages, scales and accumulation: the bits of whole updates."""
    same_bits(OPTIONS, "eager")


def check_options_static() -> None:
    same_bits(OPTIONS, "static")


def check_kinds_eager() -> None:
    """Every optimizer that works element by element."""
    same_bits(KINDS, "eager")


def check_kinds_static() -> None:
    same_bits(KINDS, "static")


def check_essentials() -> None:
    """What reads whole gradients, variables or losses, on the eager engine."""
    few = {k: OPTIONS[k] for k in ("clipnorm", "loss scale")}
    same_bits({**few, "excluding": excluding, "eve": KINDS["eve"]}, "eager")
    for way in WAYS[1:]:
        divide(way)
        model = compiled(OPTIONS["loss scale"])
        fit(model, epochs=1)
        scale = float(model.optimizer.dynamic_scale.numpy())
        assert scale < model.optimizer.initial_scale, scale  # some gradients were not finite
        assert np.isfinite(model.get_weights()[0]).all()


def check_dtypes() -> None:
    """Variables and gradients of 16 bits."""
    for backend in ("eager", "static"):
        for policy in ("bfloat16", "float16", "mixed_float16"):
            keras.config.set_dtype_policy(policy)
            kinds = {"adam": lambda: opt.Adam(0.01)}
            if policy != "bfloat16":
                kinds["clipnorm"] = OPTIONS["clipnorm"]
            same_bits(kinds, backend)
    keras.config.set_dtype_policy("float32")


def check_bytes() -> None:
    """The optimizer's bytes per rank: at most 1/P of the whole, plus 1 %."""
    group = current_group()
    keras.config.set_backend("static")
    sizes = []
    for way in WAYS:
        divide(way)
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((20,)), *(keras.layers.Dense(n) for n in (256, 256, 10))]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        fit(model, epochs=1)
        sizes.append(sum(v.numpy().nbytes for v in model.optimizer.variables))
        [(_, step)] = model.training_program.compiled_steps("train")
        assert all(e.is_native for e in step.inner.executables())
    assert max(sizes[1:]) <= sizes[0] * (1 / group.size + 0.01), sizes
    if group.rank == 0:
        print(f"bytes {sizes[1] / sizes[0]:.4f} of the whole on {group.size} ranks")


def check_refused() -> None:
    """Optimizers that need whole variables; copies."""

    class Centered(opt.Adam):
        def update(self, value: Any, gradient: Any, slots: Any, c: Any) -> Any:
            return super().update(value, gradient - keras.ops.mean(gradient), slots, c)

    class Stepping(opt.SGD):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            self.assign_sub(variable, learning_rate * gradient)

    divide(WAYS[-1])
    for make in (opt.Muon, opt.Adafactor, Centered, Stepping):
        with pytest.raises(ValueError, match="more than element by element"):
            fit(compiled(lambda make=make: make(0.01)))
    model = compiled(opt.Adam)
    fit(model, epochs=1)
    with pytest.raises(ValueError, match="cannot be copied or pickled"):
        copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="divided among the ranks"):
        model.optimizer.save_own_variables({})


def check_files() -> None:
    """Files are those of undivided slots, byte by byte; what is loaded is cut."""
    group = current_group()
    keras.config.set_backend("static")
    with shared_folder() as folder:
        expected, digests = {}, {}
        for way in WAYS:
            divided = way != "whole"
            divide(way)
            model = compiled(KINDS["adamw"])
            digests[way] = complete_digest(model, fit(model))
            own = folder / f"{way}{group.rank}"
            target = folder / way if divided else own
            if divided:
                # Only rank 0 writes: the others' folders stay empty.
                own.mkdir()
                with pytest.raises((RuntimeError, OSError)):
                    model.save_weights(str(folder / "no folder" / "x.weights.h5"))
            if group.rank == 0 or not divided:
                target.mkdir()
            group.gather(None)
            for name in ("a.weights.h5", "a.safetensors", "b.h5"):
                save = model.save if name == "b.h5" else model.save_weights
                save(str(target / name))
                found = hashlib.sha256((target / name).read_bytes()).hexdigest()
                if divided:
                    assert found == expected[name], name
                    assert not any(own.iterdir())
                expected[name] = found
            model.save(str(target / "c.keras"))
        assert len(set(digests.values())) == 1
        # Each continues from the file of the other, and from its own.
        ends = set()
        for source in (folder / "whole0", *(folder / way for way in WAYS[1:])):
            for way in WAYS if source.name == "whole0" else ("whole", source.name):
                divide(way)
                model = keras.models.load_model(str(source / "c.keras"))
                ends.add(complete_digest(model, fit(model, shuffle=False)))
                keras.utils.set_random_seed(3)
                model = compiled(KINDS["adamw"])
                fit(model, epochs=1)
                model.load_weights(str(source / "a.weights.h5"))
                ends.add("l" + complete_digest(model, fit(model, shuffle=False)))
        assert len(ends) == 2 and len(set(group.gather(tuple(sorted(ends))))) == 1, ends


def check_switched() -> None:
    """The same model continues with divided slots, and with whole ones again."""
    keras.config.set_backend("static")
    ends = []
    changes = [("whole", "whole", "whole")]
    for way in WAYS[1:]:
        changes += [("whole", way, "whole"), (way, "whole", way)]
    for ways in changes:
        model = compiled(KINDS["adamw"])
        for way in ways:
            divide(way)
            history = fit(model, epochs=1, shuffle=False)
        ends.append(complete_digest(model, history))
    assert len(set(ends)) == 1, ends


def check_resume() -> None:
    """A training continues divided or not, on these ranks or on one, with the same bits."""
    keras.config.set_backend("static")
    group = current_group()
    x, y = models.data(96)

    way = WAYS[-1]

    def run(folder: Path, epochs: int, divided: bool) -> str:
        keras.utils.clear_session()
        model = models.compiled("mlp")
        divide(way if divided else "whole")
        resume = keras.callbacks.Resume(folder, every=2, seconds=None, background=False)
        history = model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, resume=resume)
        return complete_digest(model, history)

    with shared_folder() as folder:

        def begin() -> str:
            expected = run(folder / "one", 3, False)
            run(folder / "begun", 2, False)
            drop_latest(folder / "begun")
            return expected

        expected = on_first_rank(begin)
        states = []
        for divided in (False, True):  # the states in files, too
            run(folder / f"to{divided}", 2, divided)
            group.gather(None)
            states.append(sorted(p.stat().st_size for p in (folder / f"to{divided}").iterdir()))
        assert states[0] == states[1], states
        group.gather(None)
        if group.rank == 0:
            drop_latest(folder / "toFalse")
            drop_latest(folder / "toTrue")
        group.gather(None)
        found = {
            "alone -> divided": run(folder / "begun", 3, True),
            "whole -> divided": run(folder / "toFalse", 3, True),
            "divided -> whole": run(folder / "toTrue", 3, False),
        }
        assert set(found.values()) == {expected}, (expected, found)
        run(folder / "last", 2, True)
        group.gather(None)

        def go_on() -> str:
            drop_latest(folder / "last")
            return run(folder / "last", 3, False)

        found["divided -> alone"] = on_first_rank(go_on)
        assert set(found.values()) == {expected}, (expected, found)


def check_callbacks() -> None:
    """Checkpoints, backups and averages: all ranks are involved, rank 0 writes."""
    group = current_group()
    keras.config.set_backend("static")
    x, y = models.data(96)
    cb = keras.callbacks
    digests, names = set(), set()
    with shared_folder() as folder:
        for way in WAYS:
            divide(way)
            target = folder / way
            keras.utils.clear_session()
            model = models.compiled("mlp", optimizer=opt.Adam(0.01, use_ema=True, ema_momentum=0.5))
            history = model.fit(
                x, y, batch_size=16, epochs=3, verbose=0, validation_split=0.3,
                callbacks=[
                    cb.ModelCheckpoint(str(target / "e{epoch}.keras"), keep=2),
                    cb.ModelCheckpoint(str(target / "best.keras"), save_best_only=True,
                                       background=True),
                    cb.ModelCheckpoint(str(target / "b{epoch}-{batch}.weights.h5"),
                                       save_weights_only=True, save_freq=3),
                    cb.BackupAndRestore(str(folder / f"backup{way}"),
                                        delete_checkpoint=False),
                    cb.SwapEMAWeights(),
                ],
            )  # fmt: skip
            digests.add(complete_digest(model, history))
            group.gather(None)
            names.add(tuple(sorted(p.name for p in target.iterdir())))
            for path in sorted(target.glob("*.weights.h5")):
                digests.add((path.name, hashlib.sha256(path.read_bytes()).hexdigest()))
        assert len(names) == 1, names
        assert len(digests) == 1 + sum(n.endswith("h5") for n in next(iter(names))), digests
        sums = []
        for way in WAYS:
            model = keras.models.load_model(str(folder / way / "best.keras"))
            sums.append([v.numpy().tobytes() for v in model.optimizer.variables])
        assert all(each == sums[0] for each in sums)


def check_sources() -> None:
    """Batches read ahead, with a state every few of them; a NaN and its replay."""
    group = current_group()
    keras.config.set_backend("static")
    x, y = models.data(160)

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, number: int) -> Any:
            part = slice(16 * number, 16 * number + 16)
            return x[part], y[part]

    digests = set()
    with shared_folder() as folder:
        for way in WAYS:
            divide(way)
            model = compiled(KINDS["adamw"])
            resume = keras.callbacks.Resume(folder / way, every=3, seconds=None, background=False)
            history = model.fit(Batches(), epochs=2, verbose=0, resume=resume)
            digests.add(complete_digest(model, history))
        assert len(digests) == 1
        bad = x[:77].copy()
        bad[50, 3] = np.nan
        file = folder / "replay.npz"
        model = compiled(KINDS["adamw"])
        autopsy = keras.callbacks.NaNAutopsy(file, raise_error=False)
        model.fit(bad, y[:77], batch_size=16, verbose=0, callbacks=[autopsy])
        assert autopsy.finding is not None
        group.gather(None)
        with alone():
            model = compiled(KINDS["adamw"])
            origin = keras.callbacks.NaNAutopsy.replay(model, file)
        assert origin is not None and str(origin) == str(autopsy.finding.origin)


def check_one_rank() -> None:
    """What one rank does by itself between two saves is no missing call."""
    group = current_group()
    keras.config.set_backend("static")
    divide(WAYS[-1])
    model = compiled(KINDS["adamw"])
    fit(model, epochs=1)
    step = model.training_program.step("predict")
    if group.rank == 0:
        for _ in range(3):
            step(models.data(1)[0])  # fewer rows than shards: no exchange
        time.sleep(1.5)  # the others ask where this rank is
    model.get_state_tree()


def check_model_parallel() -> None:
    """A ModelParallel: the bits of DataParallel, a part of its bytes, and whole values to read."""
    group, distribution = current_group(), keras.distribution
    layouts = distribution.LayoutMap(distribution.DeviceMesh((1, group.size), ["batch", "model"]))
    layouts["kernel"] = (None, "model")
    parallel = distribution.ModelParallel(layout_map=layouts, shards=SHARDS[0])
    data_parallel = distribution.DataParallel(shards=SHARDS[0])
    x, y = np.ones((16, 64), "float32"), np.ones((16, 64), "float32")
    for backend in ("eager", "static"):
        keras.config.set_backend(backend)
        ends, sizes, peaks = [], [], []
        for kind in (data_parallel, parallel):
            distribution.set_distribution(kind)
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            deep = [keras.layers.Dense(64, activation="tanh") for _ in range(4)]
            model = keras.Sequential([keras.Input((64,)), *deep])
            model.compile("adam", "mse")
            history = model.fit(x, y, batch_size=16, verbose=0)
            ends.append(complete_digest(model, history))
            ends.append(model.predict(x, verbose=0).tobytes())
            kernel = model.layers[0].kernel
            whole = kernel.numpy()
            model.set_weights([2 * w for w in model.get_weights()])
            assert np.array_equal(kernel.numpy(), 2 * whole) and kernel.shape == (64, 64)
            stores = [v.store for v in model.variables if v.store is not None]
            assert len(stores) == (4 if kind is parallel else 0)
            held = [s.segment if s is not None else v for v in model.variables for s in [v.store]]
            every = [*held, *model.optimizer.variables]
            sizes.append(sum(v.numpy().nbytes for v in every))
            [(_, step)] = model.training_program.compiled_steps("train")
            peaks.append(step.memory_report().get("planned", 0))
        assert len(set(ends)) == 2, backend
        assert sizes[1] <= sizes[0] * (1 / group.size + 0.02), sizes
        assert backend == "eager" or peaks[1] < 1.2 * peaks[0], peaks


class Counts(keras.layers.Layer):
    """Adds the sums of its inputs to a weight, which the shards' sums are added up in."""

    def build(self, shape: Any) -> None:
        options = {"trainable": False, "aggregation": "sum"}
        self.counts = self.add_weight(shape=shape[1:], initializer="ones", name="counts", **options)

    def call(self, x: Any) -> Any:
        self.counts.assign_add(keras.ops.sum(x, 0))
        return x


def check_assigned() -> None:
    """Divided variables that layers assign: what the shards assign is merged, then cut."""
    group, x = current_group(), np.random.default_rng(0).standard_normal((12, 32), "float32")
    for backend in ("eager", "static"):
        keras.config.set_backend(backend)
        found = []
        for divided in (None, lambda path: True):
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            layers = [Counts(), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
            model = keras.Sequential([keras.Input((32,)), *layers])
            model.compile("sgd", "mse")
            set_sharding(Sharding(group, group.size, False, divided))
            model.fit(x, x[:, :2], batch_size=6, verbose=0, shuffle=False)
            assert (layers[0].counts.store is None) == (divided is None)
            found.append([w.tobytes() for w in model.get_weights()])
            np.testing.assert_allclose(model.get_weights()[0], 1 + x.sum(0), rtol=1e-5, atol=1e-5)
        assert found[0] == found[1], backend


CHECKS = {k.removeprefix("check_"): f for k, f in globals().items() if k.startswith("check_")}

if __name__ == "__main__":
    if os.environ.get("PMI_SIZE") == "3":
        SHARDS[0] = 3
    main(CHECKS, sys.argv[1:])
