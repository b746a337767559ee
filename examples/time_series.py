"""Time series forecasting with a GRU
==================================

A GRU forecasts the next day of a town's electricity demand, hour by hour.

The series is made up, so nothing is downloaded: a year of hours with a daily and a weekly rhythm,
seasons, slow random drift and noise. The network reads a week, knows from the calendar which of the
next hours belong to a working day, and gives the demand of the 24 hours that follow.
It is judged on the last month, which it never saw, against the forecasts "as yesterday" and "as a
week ago".
Shows: windows cut from a series by timeseries_dataset_from_array, GRU, ops in a functional model, a
forecast of many values.

Run: python examples/time_series.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers, ops

keras.utils.set_random_seed(0)
WEEK, DAY = 7 * 24, 24

# %%
# The series
# ----------
# Peaks in the morning and the evening, lower ones at weekends, in megawatts.

rng = np.random.default_rng(0)
hours = np.arange(365 * DAY)
hour, weekday = hours % DAY, hours // DAY % 7
morning, evening = np.exp(-((hour - 8.5) ** 2) / 6), np.exp(-((hour - 19) ** 2) / 10)
rhythm = 18 + np.where(weekday < 5, 12, 4) * morning + 9 * evening
season = 4 * np.cos(2 * np.pi * hours / len(hours))
drift = np.zeros(len(hours))
for i in range(1, len(hours)):
    drift[i] = 0.98 * drift[i - 1] + rng.normal(scale=0.45)
noise = rng.normal(scale=0.5, size=len(hours))
series = (rhythm + season + drift + noise).astype("float32")
working = (weekday < 5).astype("float32")

# %%
# Windows
# -------
# An example is a week and the day after it. Each hour of the week has two numbers: its demand, and
# whether the same hour of the next day is in a working day. So the last 24 hours tell the calendar
# of the day to forecast. For training a window begins every third hour; the last month is held out,
# one forecast per day.


def cut_windows(series: np.ndarray, working: np.ndarray, every: int) -> keras.data.Dataset:
    """Return batches of (a week, the day after it), a window beginning every few hours."""
    columns = np.stack([series[:-DAY], working[DAY:]], axis=1)
    days = np.lib.stride_tricks.sliding_window_view(series[WEEK:], DAY)
    return keras.utils.timeseries_dataset_from_array(
        columns, days, WEEK, sequence_stride=every, batch_size=64, shuffle=False
    )


cut = len(series) - 30 * DAY
mean, spread = series[:cut].mean(), series[:cut].std()
scaled = (series - mean) / spread
training = cut_windows(scaled[:cut], working[:cut], every=3)
testing = cut_windows(scaled[cut - WEEK :], working[cut - WEEK :], every=DAY)

# %%
# The model
# ---------
# Demand in winter is higher than anything most training windows show. So the network sees each week
# relative to the mean of its last day, and forecasts relative to that mean.

week = keras.Input((WEEK, 2))
demand, calendar = week[..., :1], week[..., 1:]
level = ops.mean(demand[:, -DAY:], axis=1)
state = layers.GRU(48)(layers.Concatenate()([demand - level[:, None], calendar]))
calendar_of_day = layers.Flatten()(calendar[:, -DAY:])
forecast = layers.Dense(DAY)(layers.Concatenate()([state, calendar_of_day])) + level
model = keras.Model(week, forecast)
epochs = 8
rate = keras.optimizers.schedules.CosineDecay(0.01, epochs * len(training))
model.compile(keras.optimizers.Adam(rate), "mse")
model.fit(training, epochs=epochs, verbose=2)

# %%
# Evaluation
# ----------

known, truth = (np.concatenate(parts) for parts in zip(*testing))
predicted = model.predict(known, verbose=0)
print("mean error over the held-out month, in megawatts:")
guesses = {
    "network": predicted,
    "as yesterday": known[:, -DAY:, 0],
    "as a week ago": known[:, :DAY, 0],
}
for name, guess in guesses.items():
    print(f"  {name:<14} {np.abs(guess - truth).mean() * spread:.2f}")

# %%
# The forecasts are not too low or too high on average: nearly all of the error is spread. The
# drift of the demand in the next hours cannot be predicted.

error = (predicted - truth) * spread
print(f"mean of forecast - truth: {error.mean():+.2f}")

# %%
# Ten days of the month, with the forecast that was made for each at midnight. Below, how large the
# errors are at each hour of the day. In the first hours the network is best, because the demand has
# not yet drifted far. Yesterday is a bad guess for the mornings: the peak of a working day is
# higher than that of a weekend, which the calendar tells.

truth, predicted = (part * spread + mean for part in (truth, predicted))
figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(10, 6.4), layout="constrained", height_ratios=(1.3, 1)
)
days = np.arange(10 * DAY) / DAY
top.plot(days, truth[3:13].ravel(), label="demand")
for day in range(10):
    at = day + np.arange(DAY) / DAY
    top.plot(at, predicted[3 + day], "--", color="tab:orange", label="" if day else "forecast")
    top.axvline(day, color="0.85", linewidth=0.8, zorder=0)
top.set(title="Demand and forecasts of ten held-out days", xlabel="day", ylabel="megawatts",
        xticks=range(11), xlim=(0, 10))  # fmt: skip
top.legend(loc="lower left", ncols=2)
for (name, guess), style in zip(guesses.items(), ("-", "--", ":")):
    error = np.abs(guess * spread + mean - truth).mean(axis=0)
    bottom.plot(range(DAY), error, style, label=name)
bottom.set(title="Mean error by the hour", xlabel="hour of the day", ylabel="megawatts",
           ylim=(0, None), xticks=range(0, 24, 3))  # fmt: skip
bottom.legend()

picture = sys.argv[1] if len(sys.argv) > 1 else "time_series.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
