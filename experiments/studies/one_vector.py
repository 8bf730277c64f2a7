"""Is a wide state harder to train, or did it only get the learning rate of a narrow one?"""

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import difference, level
from experiments.tasks import captions, decay, fit, mean_loss, right, stream, translation_loss
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq

DATA = {"shortest": 4, "longest": 10}


def warmed(update, budget):
    """A tenth of the updates rises, then all fall."""
    return min(1, 10 * update / budget) * decay(update, budget)


def measure(seed, budget, width, rate, n=6000, warm_up=False, dropout=0.0, **options):
    """Exact matches on new captions of 4 to 10 words, after training on n of them."""
    data = captions(seed, n=n, **DATA)
    model = RecurrentSeq2Seq(RecurrentConfig(*data.sizes, d_model=64, d_hidden=width, dropout=dropout, **options))
    schedule = warmed if warm_up else decay
    fit(model, translation_loss, stream(data.rows["train"], 64, seed), rate, budget, schedule, betas=(0.9, 0.999))
    return {"valid": mean_loss(model, data.rows["valid"]), "exact": right(model, data.rows["test"])}


ARMS = {f"width {width}": {"width": width} for width in (64, 128, 192)}
STUDY = Study(
    chapter="history/encoder_decoder",
    equal="captions and order of batches (by seed; data size apart), embeddings, Adam, clipping at 1, linear decay, updates, greedy decoding",
    arms=ARMS
    | {
        "width 128, source reversed": {"width": 128, "reverse_source": True},
        "width 192 at 0.002": {"width": 192, "rate": 0.002},
        "width 128, 2,000 captions": {"width": 128, "n": 2000},
        "width 128, 18,000 captions": {"width": 128, "n": 18000},
    },
    rates=(0.002, 0.004, 0.008, 0.016, 0.032),
    measure=measure,
    metric="% of new captions translated exactly",
    budget=800,
    smoke=2,
    findings={
        "wide": Finding(
            "Within the same 800 updates and at its own learning rate, a state of 192 numbers does better than one of 64.",
            difference("exact", "width 192", "width 64"),
            ("low", ">", 0),
            withdrawn="With five seeds, the difference lies anywhere between −18 and 19 points.",
        ),
        "slow": Finding(
            "At a rate of 0.002, the wide state has hardly begun to learn after 800 updates.",
            level("exact", "width 192 at 0.002"),
            ("high", "<", 10),
            withdrawn="It translates few captions, but its loss is already far below that of predicting word frequencies.",
        ),
        "reversed": Finding(
            "Reading the source backwards helps a model that has one vector.",
            difference("exact", "width 128, source reversed", "width 128"),
            ("low", ">", 0),
            withdrawn="With a warm-up of the learning rate, nothing is left of it.",
        ),
        "data": Finding(
            "With 18,000 captions in place of 6,000, the same number of updates teaches the same model more.",
            difference("exact", "width 128, 18,000 captions", "width 128"),
            ("low", ">", 0),
            withdrawn="One of five seeds does worse with 18,000; between 2,000 and 18,000 captions the gain is clear.",
        ),
        "more-data": Finding(
            "With 18,000 captions in place of 2,000, the same number of updates teaches the same model more.",
            difference("exact", "width 128, 18,000 captions", "width 128, 2,000 captions"),
            ("low", ">", 5),
        ),
    },
)

REVERSED = "width 128, source reversed"
FEW, MANY = "width 128, 2,000 captions", "width 128, 18,000 captions"
CHECKS = {
    "longer": Check(
        "seeds 100 to 103, 1,600 updates, three closer rates chosen on one seed; rates of 0.008 with 2,000 captions and of 0.012 with 18,000",
        ("reversed",),
        range(100, 104),
        {"width 128": {}, REVERSED: {}, FEW: {"rate": 0.008}, MANY: {"rate": 0.012}},
        budget=1600,
        rates=(0.005, 0.008, 0.012),
    ),
    "warm-up": Check(
        "the learning rate first rises for a tenth of the updates; rates chosen on one seed (0.008 with 2,000 captions, 0.016 with 18,000), seeds 200 to 203",
        ("reversed",),
        range(200, 204),
        plain(STUDY, "width 64") | {FEW: {"rate": 0.008}, MANY: {"rate": 0.016}},
        settings={"warm_up": True},
        rates=dict.fromkeys(("width 128", REVERSED), (0.008, 0.016, 0.032)) | {"width 192": (0.004, 0.008, 0.016)},
    ),
    "again": Check(
        "seeds 300 to 303, and a rate of 0.006 in place of the best one",
        (),
        range(300, 304),
        {"width 192": {"rate": 0.006}, "width 192 at 0.002": {}},
    ),
    "more-updates": Check(
        "1,600 updates; with 2,000 captions, the best of three rates; with 18,000, a rate of 0.012; seeds 400 to 405",
        ("more-data",),
        range(400, 406),
        {FEW: {}, MANY: {"rate": 0.012}},
        budget=1600,
        rates=(0.004, 0.008, 0.016),
    ),
    "dropout": Check(
        "800 updates, dropout of 0.2, and the best of three rates for either number of captions; seeds 500 to 505",
        ("more-data",),
        range(500, 506),
        {FEW: {}, MANY: {}},
        settings={"dropout": 0.2},
        rates={FEW: (0.004, 0.008, 0.016), MANY: (0.008, 0.016, 0.032)},
    ),
}
