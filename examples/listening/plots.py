"""The report: two plots and a page, from what the steps before it published."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, TINT = "#26547c", "#ef476f"


def draw(gold: Path, day: str) -> dict[str, Any]:
    """Write `report.html` and its plots; what the task reports of them."""
    sessions = pd.read_parquet(gold / "sessions" / f"day={day}")
    songs = pd.read_parquet(gold / "songs" / f"day={day}").sort_values("plays", ascending=False)
    names = [
        _plot(gold / "top-songs.png", lambda axes: _top_songs(axes, songs)),
        _plot(gold / "by-hour.png", lambda axes: _by_hour(axes, sessions)),
    ]
    (gold / "report.html").write_text(_page(day, sessions, songs, names), encoding="utf-8")
    top = songs.iloc[0]
    return {"top_song": f"{top.title} by {top.artist}", "plots": names}


def _plot(path: Path, fill: Any) -> str:
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    fill(axes)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path.name


def _top_songs(axes: Axes, songs: pd.DataFrame) -> None:
    top = songs.head(10)[::-1]
    axes.barh([f"{song.title} · {song.artist}" for song in top.itertuples()], top["plays"], color=INK)
    axes.set_title("Most played songs")
    axes.set_xlabel("plays")


def _by_hour(axes: Axes, sessions: pd.DataFrame) -> None:
    hours = sessions.groupby(sessions["begin"].dt.hour)["minutes"].sum() / 60
    axes.bar(hours.index, hours.to_numpy(), color=TINT)
    axes.set_title("Hours listened, by the hour in which the session began")
    axes.set_xlabel("hour of the day")


def _page(day: str, sessions: pd.DataFrame, songs: pd.DataFrame, plots: list[str]) -> str:
    facts = {
        "plays": f"{int(songs['plays'].sum()):,}",
        "people": f"{sessions['person'].nunique():,}",
        "sessions": f"{len(sessions):,}",
        "minutes in a session": f"{sessions['minutes'].mean():.0f}",
    }
    cells = "".join(f"<td><b>{value}</b><br>{html.escape(name)}</td>" for name, value in facts.items())
    images = "".join(f'<p><img src="{html.escape(name)}" alt="{html.escape(name)}"></p>' for name in plots)
    return (
        f'<!doctype html><meta charset="utf-8"><title>Listening on {day}</title>'
        "<style>body{font:16px/1.5 system-ui;max-width:52rem;margin:2rem auto;color:#222}"
        "td{padding:0 2rem 0 0}img{max-width:100%}</style>"
        f"<h1>Listening on {day}</h1><table><tr>{cells}</tr></table>{images}"
    )
