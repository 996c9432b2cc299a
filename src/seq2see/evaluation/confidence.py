"""Confidence: the expected quality of a translation, computed from its probability and calibrated on validation pairs.

    calibration = fit("exact", logs, lengths, qualities)            # at the end of a training; stored in the manifest
    calibration.of(translation)                                     # ExpectedQuality(value=0.93, measures="exact", ...)

A model's own probability of a translation is not reliable: label smoothing makes it too low, overfitting too high, and
it falls with the length. The confidence can be interpreted: if outputs are either right or wrong, it is the probability
that the output is right (exact match). Otherwise it is the expected chrF of the sentence, divided by 100, because even
a good translation is hardly ever equal to its reference.

Both are fitted in the same way, by a logistic function of two features (Platt 1999, with shares as targets): the logit
of the model's probability, of the whole output or, for chrF, of a token on average, and the logarithm of the length.
Three numbers do not overfit a few hundred pairs, and the confidence never falls if the probability rises.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from seq2see.decoding.translator import Translation

Floats = NDArray[np.float64]
Measure = Literal["exact", "chrf"]

FEWEST: Final = 100
"""Minimum number of validation pairs for a calibration; with fewer, the error of the fit would exceed the error that it
corrects.
"""
MOST_BINS, IN_A_BIN = 10, 20
"""Maximum number of points (bins) of a reliability curve, and minimum number of translations in each bin."""
FOLDS: Final = 5
RIDGE: Final = 1.0
"""Ridge penalty on the squared slopes of the logistic regression, for standardised features; it is small compared with
the likelihood of a hundred pairs.
"""
ROUNDS: Final = 50
LEAST: Final = 1e-300
"""Lower bound of a translation's probability before the logarithm is taken, because the logarithm of 0 is not
finite.
"""
WEAKEST: Final = 0.1
"""If quality is measured by chrF, the share of validation translations, those of the lowest confidence, that count as
weak.
"""


class ExpectedQuality(NamedTuple):
    """The expected quality of a translation."""

    value: float
    """From 0 to 1: the probability that the translation is right or, if `measures` is chrF, its expected chrF / 100."""
    measures: Measure
    weak: bool
    """Whether the translation is more likely wrong than right; for chrF, whether its confidence is in the range of the
    weakest tenth of the validation translations.
    """


class CurvePoint(NamedTuple):
    """One point of a reliability curve: mean predicted and observed quality of translations of similar confidence."""

    predicted: float
    observed: float
    translations: int


@dataclass(frozen=True)
class Calibration:
    """The function from probability and length to confidence, and its calibration error, as stored in the manifest."""

    measures: Measure
    coefficients: tuple[float, float, float]
    """Coefficients of the logistic regression: intercept, slope of the logit of the model's own probability, and slope
    of the logarithm of the length in tokens.
    """
    weak_below: float
    pairs: int
    error_before: float
    """Mean absolute difference between the model's own probability (for chrF, of a token on average) and the quality,
    over the points of a reliability curve (expected calibration error).
    """
    error_after: float
    """Expected calibration error of the confidence, cross-validated: each pair is judged by a function fitted without
    it.
    """
    curve_before: tuple[CurvePoint, ...]
    curve_after: tuple[CurvePoint, ...]

    def of(self, translation: Translation) -> ExpectedQuality | None:
        """Return the confidence of a translation; None if its output is empty, or its probability is unknown."""
        if translation.probability is None or not translation.tokens:
            return None
        log = math.log(max(translation.probability, LEAST))
        features = _features(self.measures, np.array([log]), np.array([len(translation.tokens) + 1]))
        value = round(float(_predicted(features, np.array(self.coefficients))[0]), 4)
        return ExpectedQuality(value, self.measures, value < self.weak_below)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def fit(
    measures: Measure, logs: Sequence[float], lengths: Sequence[int], qualities: Sequence[float]
) -> Calibration | None:
    """Fit confidence as a function of probability and length.

    Return None for fewer than `FEWEST` translations, or if all are equally good, for example right: they then do not
    show how the quality falls with the probability, and every other translation would get the same confidence.

    Args:
        logs: The log-probability of each translation.
        lengths: The number of its tokens, including the end token.
        qualities: 0 to 1, as `measures` says: right or not, or chrF / 100.
    """
    quality_N = np.clip(np.array(qualities, np.float64), 0, 1)
    if len(logs) < FEWEST or np.ptp(quality_N) == 0:
        return None
    log_N, length_N = np.maximum(np.array(logs, np.float64), math.log(LEAST)), np.array(lengths, np.float64)
    features_NF = _features(measures, log_N, length_N)
    held_out_N = np.empty(len(quality_N))
    fold_N = np.arange(len(quality_N)) % FOLDS
    for fold in range(FOLDS):
        found = _fit(features_NF[fold_N != fold], quality_N[fold_N != fold])
        held_out_N[fold_N == fold] = _predicted(features_NF[fold_N == fold], found)
    coefficients = _fit(features_NF, quality_N)
    before, after = reliability(_own(measures, log_N, length_N), quality_N), reliability(held_out_N, quality_N)
    weak = 0.5 if measures == "exact" else float(np.quantile(_predicted(features_NF, coefficients), WEAKEST))
    constant, slope, by_length = coefficients.round(6).tolist()
    return Calibration(
        measures,
        (constant, slope, by_length),
        round(weak, 4),
        len(logs),
        round(calibration_error(before), 4),
        round(calibration_error(after), 4),
        tuple(before),
        tuple(after),
    )


def from_json(kept: Any) -> Calibration | None:
    """Read a calibration from a manifest; return None if there is none, or it is not valid."""
    try:
        curves = [tuple(CurvePoint(*point) for point in kept[name]) for name in ("curve_before", "curve_after")]
        fields = {name: value for name, value in kept.items() if not name.startswith("curve_")}
        found = Calibration(**fields, curve_before=curves[0], curve_after=curves[1])
        shares = [found.weak_below, found.error_before, found.error_after]
        shares += [share for curve in curves for point in curve for share in point[:2]]
        constant, slope, by_length = map(float, found.coefficients)
        fits = (
            found.measures in get_args(Measure)
            and all(type(share) in (int, float) and 0 <= share <= 1 for share in shares)
            and all(math.isfinite(each) and abs(each) < 1e6 for each in (constant, slope, by_length))
            and slope >= 0
            and all(
                type(count) is int
                for count in (found.pairs, *(point.translations for curve in curves for point in curve))
            )
            and max(map(len, curves)) <= MOST_BINS
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None
    return found if fits else None


def reliability(predicted_N: Floats, quality_N: Floats) -> list[CurvePoint]:
    """Return the reliability curve: translations sorted by their predicted quality, in bins of about equal size."""
    bins = max(1, min(MOST_BINS, len(predicted_N) // IN_A_BIN))
    order = np.argsort(predicted_N, kind="stable")
    return [
        CurvePoint(round(float(predicted_N[some].mean()), 4), round(float(quality_N[some].mean()), 4), len(some))
        for some in np.array_split(order, bins)
    ]


def calibration_error(curve: Sequence[CurvePoint]) -> float:
    """Return the mean absolute difference of predicted and observed quality, with points weighted by their numbers of
    translations (expected calibration error).
    """
    total = sum(point.translations for point in curve)
    return sum(point.translations * abs(point.predicted - point.observed) for point in curve) / total


def _own(measures: Measure, log_N: Floats, length_N: Floats) -> Floats:
    """Return the model's own probability of each whole translation or, for chrF, its geometric mean per token."""
    own_N: Floats = np.exp(log_N if measures == "exact" else log_N / length_N)
    return own_N


def _features(measures: Measure, log_N: Floats, length_N: Floats) -> Floats:
    """Return two features of each translation: the logit of its probability by `_own`, and the logarithm of its
    length.
    """
    log_p_N = log_N if measures == "exact" else log_N / length_N
    logit_N = log_p_N - np.log(np.maximum(-np.expm1(np.minimum(log_p_N, 0)), 1e-9))
    return np.stack([np.clip(logit_N, -50, 50), np.log(length_N)], -1)


def _predicted(features_NF: Floats, coefficients: Floats) -> Floats:
    scores_N = np.clip(coefficients[0] + features_NF @ coefficients[1:], -60, 60)
    predicted_N: Floats = 1 / (1 + np.exp(-scores_N))
    return predicted_N


def _fit(features_NF: Floats, quality_N: Floats) -> Floats:
    """Return intercept and slopes of a logistic regression with shares as targets.

    One right and one wrong translation with average features are added; if all translations are right, they keep the
    confidence below 1 (Laplace). If a higher probability would lower the confidence, its slope is set to 0, and the
    rest is fitted again.
    """
    mean_F, deviation_F = features_NF.mean(0), np.maximum(features_NF.std(0), 1e-6)
    scaled_NF = np.concatenate([(features_NF - mean_F) / deviation_F, np.zeros((2, features_NF.shape[1]))])
    target_N = np.append(quality_N, [0.0, 1.0])
    found = _newton(scaled_NF, target_N)
    if found[1] < 0:
        found = np.insert(_newton(scaled_NF[:, 1:], target_N), 1, 0.0)
    slopes_F = found[1:] / deviation_F
    return np.concatenate([[found[0] - slopes_F @ mean_F], slopes_F])


def _newton(features_NF: Floats, target_N: Floats) -> Floats:
    """Return intercept and slopes of a logistic regression by Newton's method, with the ridge penalty `RIDGE` on the
    slopes.
    """
    design_NF = np.concatenate([np.ones((len(features_NF), 1)), features_NF], -1)
    penalty_F = np.array([0.0] + [RIDGE] * features_NF.shape[1])
    found = np.zeros(len(penalty_F))
    for _ in range(ROUNDS):
        predicted_N = _predicted(features_NF, found)
        spread_N = np.maximum(predicted_N * (1 - predicted_N), 1e-9)
        slope_F = design_NF.T @ (target_N - predicted_N) - penalty_F * found
        curvature_FF = (design_NF * spread_N[:, None]).T @ design_NF + np.diag(penalty_F)
        step_F = np.clip(np.linalg.solve(curvature_FF, slope_F), -2, 2)
        found = found + step_F
        if np.abs(step_F).max() < 1e-8:
            break
    return found
