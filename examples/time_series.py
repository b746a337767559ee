"""Time series forecasting with a GRU
==================================

A GRU forecasts the next day of a town's electricity demand, hour by hour.

The series is made up, so that nothing has to be downloaded: a year of hours with a daily and a
weekly rhythm, seasons, slow random drift and noise. The network reads a week and gives the 24 hours
that follow. The judge is the last month, which it never saw, and its rivals are "as yesterday" and
"as a week ago".
Shows: windows cut from a series by timeseries_dataset_from_array, GRU, a forecast of many values.

Run: python examples/time_series.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib import pyplot as plt

import kerasish as keras
from kerasish import layers

WEEK, DAY = 7 * 24, 24


def make_series() -> np.ndarray:
    """Return a year of hourly demand in megawatts."""
    rng = np.random.default_rng(0)
    hours = np.arange(365 * DAY)
    day, weekday = hours % DAY, hours // DAY % 7
    morning, evening = np.exp(-((day - 8.5) ** 2) / 6), np.exp(-((day - 19) ** 2) / 10)
    shape = 18 + np.where(weekday < 5, 12, 4) * morning + 9 * evening
    season = 4 * np.cos(2 * np.pi * hours / len(hours))
    drift = np.zeros(len(hours))
    for i in range(1, len(hours)):
        drift[i] = 0.98 * drift[i - 1] + rng.normal(scale=0.45)
    return (shape + season + drift + rng.normal(scale=0.5, size=len(hours))).astype("float32")


def cut_windows(series: np.ndarray, every: int) -> keras.utils.PyDataset:
    """Return batches of (a week, the day after it), a window beginning every few hours."""
    days = np.lib.stride_tricks.sliding_window_view(series[WEEK:], DAY)
    return keras.utils.timeseries_dataset_from_array(
        series[:-DAY, None], days, WEEK, sequence_stride=every, batch_size=64, shuffle=False
    )


def draw(week: np.ndarray, truth: np.ndarray, forecast: np.ndarray, picture: str) -> None:
    figure, axes = plt.subplots(3, 1, figsize=(9, 7), layout="constrained", sharex=True)
    for ax, i in zip(axes, (3, 9, 16)):
        ax.plot(np.arange(-72, 0), week[i, -72:, 0], color="gray", label="known")
        ax.plot(np.arange(DAY), truth[i], label="what came")
        ax.plot(np.arange(DAY), forecast[i], "--", label="forecast")
        ax.set_ylabel("megawatts")
    axes[0].legend(loc="upper left")
    axes[-1].set_xlabel("hours from now")
    figure.savefig(picture, dpi=110)


def main(picture: str = "time_series.png") -> None:
    keras.utils.set_random_seed(0)
    series = make_series()
    cut = len(series) - 30 * DAY
    mean, spread = series[:cut].mean(), series[:cut].std()
    scaled = (series - mean) / spread
    training = cut_windows(scaled[:cut], every=3)
    testing = cut_windows(scaled[cut - WEEK :], every=DAY)

    model = keras.Sequential([keras.Input((WEEK, 1)), layers.GRU(48), layers.Dense(DAY)])
    rate = keras.optimizers.schedules.CosineDecay(0.01, 8 * len(training))
    model.compile(keras.optimizers.Adam(rate), "mse")
    model.fit(training, epochs=8, verbose=2)

    week, truth = (np.concatenate(parts) for parts in zip(*testing))
    forecast = model.predict(week, verbose=0)
    print("mean error over the month kept apart, in megawatts:")
    guesses = [("network", forecast), ("as yesterday", week[:, -DAY:, 0]),
               ("as a week ago", week[:, :DAY, 0])]  # fmt: skip
    for name, guess in guesses:
        print(f"  {name:<14} {np.abs(guess - truth).mean() * spread:.2f}")
    back = [x * spread + mean for x in (week, truth, forecast)]
    draw(*back, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
