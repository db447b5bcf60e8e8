"""`kermit score`: print log-likelihoods of texts and pairs, in nats."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kermit.cli.inputs import sides
from kermit.cli.options import Json, Model, Output, TextsOrPairs, bundled, load_kermit, progress_bar, refuse
from kermit.cli.output import Results
from kermit.errors import placed

DRAWING = ("--orders", "--prior", "--temperature", "--seed")
"""Options for drawing orders."""
NOT_DRAWN = {"exact": "sums over all orders", "left_to_right": "scores one order"}
"""The methods that draw no orders, and what they do instead."""


@bundled
def score(
    context: typer.Context,
    what: TextsOrPairs,
    factorization: Annotated[
        Literal["joint", "y_given_x", "x_given_y", "x", "y"] | None,
        typer.Option(help="Which sides to score, and which to condition on; by default all given sides are scored."),
    ] = None,
    method: Annotated[
        Literal["exact", "importance", "bound", "paper_bound", "left_to_right"],
        typer.Option(
            help="Sum over all orders (short texts), estimate from some orders, lower bound, or the exact value for"
            " left-to-right order (for models trained for it)."
        ),
    ] = "importance",
    orders: Annotated[int, typer.Option(min=1, help="Number of orders to draw; not for exact and left_to_right.")] = 16,
    prior: Annotated[
        Literal["uniform", "balanced_tree", "left_to_right"],
        typer.Option(
            help="Prior that orders are drawn from, best the one used in training. A prior that excludes orders"
            " (left_to_right) gives a lower bound without a standard error."
        ),
    ] = "uniform",
    temperature: Annotated[float, typer.Option(min=0.001, help="Temperature of the balanced tree.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    model: Model = None,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Print the log-likelihood of texts or pairs in nats, with its standard error if it has one.

    Example: kermit score --x "A dog sleeps." --y "Ein Hund schläft." --factorization y_given_x
    """
    if method in NOT_DRAWN:
        refuse(context, DRAWING, f"has no effect: --method {method} {NOT_DRAWN[method]}; remove it")
    if prior != "balanced_tree":
        refuse(context, ["--temperature"], "applies only to the balanced tree; remove it, or add --prior balanced_tree")
    given = what.read()
    kermit = load_kermit(model)
    from kermit.objectives.priors import make_prior

    order_prior = make_prior(prior, temperature=temperature)
    on_y = what.on_y(context, kermit)
    with Results(output) as results, progress_bar(len(given), "scoring") as advance:
        for one in given:  # one by one, so that a score does not depend on other texts
            with placed([one.place]):
                (found,) = kermit.score(
                    *sides([one], on_y=on_y),
                    factorization=factorization,
                    method=method,
                    prior=order_prior,
                    orders=orders,
                    seed=seed,
                )
            advance(1)
            if json_:
                record = one.record(on_y=on_y) | {"log_prob": found.log_prob, "method": method}
                results.json(record | ({"standard_error": found.standard_error} if method == "importance" else {}))
            else:
                error = "" if found.standard_error is None else f"\t{found.standard_error:.4f}"
                results.line(f"{found.log_prob:.4f}{error}")
