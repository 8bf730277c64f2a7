"""How others tried to break the findings of the studies: by study, then by name.

A check that has run is in the record of its study. `python -m experiments check luong/longer` runs it again.
"""

from experiments.harness import Check, get_study
from experiments.studies import alignment, luong, warm_up
from experiments.studies.residuals import EYE, EYE_RESIDUAL, HE, PRE_NORM, SIX, SIX_PRE_NORM


def plain(study, *without):
    """The arms of a study as they are, except some."""
    return {name: {} for name in get_study(study).arms if name not in without}


TWICE, NEAREST = alignment.TWICE, alignment.NEAREST
READ_LAST = {luong.BEFORE: {}, luong.WORD: {}}
REINFORCE, LONG = "reinforce, bonus", "reinforce, bonus, three times the updates"
TITLES = plain("zapier", "bag of words")
HARD = plain("hard_attention")
LATENT = plain("latent_attention", "quarters of a summary", "latent attention")
DEFAULT, LIBRARY = "PyTorch's default, twice the updates", "the library's, twice the updates"
NORMED = dict.fromkeys((PRE_NORM, SIX_PRE_NORM), (0.006, 0.015, 0.04))
TIMED = plain("layers", "GRU, 1024 words", "convolution, 64 words")
SEARCHES = (1, 1), (4, 0), (4, 1), (16, 0), (16, 1)
BEAMS = {f"beam {beam}, penalty {penalty}": {} for beam, penalty in SEARCHES}
WARM_UP = tuple(get_study("warm_up").findings)
COLD, WARM = (0.0035, 0.005, 0.007, 0.01), (0.005, 0.007, 0.01, 0.014)
PEAKS = {name: COLD if "no warm-up" in name else WARM for name in plain("warm_up")}
REVERSED = "width 128, source reversed"
FEW, MANY = "width 128, 2,000 captions", "width 128, 18,000 captions"
LATER = "one head, four times the updates", "four heads, four times the updates"
SHORT = "from scratch", "pre-trained"
LONGER = [f"{name}, four times the updates" for name in SHORT]
WIDE, NEVER = "one wider layer with four heads", "two layers, previous token hidden"
SHIFTED = "one layer, keys shifted by one token"
LEARNED = {"learned positions": {}, "GPT-2's design": {}}
STACKS = "Transformer", "Transformer, twice the updates"
WITH_ATTENTION = "GRU with attention", "GRU with attention, twice the updates"
STEPS = ("step, float32", "step, bfloat16")
VECTOR = "one vector, read both ways"
SPEED = [a for a in plain("speed") if "sorted" in a or a == "training, Hugging Face, as they come"]
CHECKS = {
    "alignment": {
        "longer": Check(
            "seeds 100 to 104, twice 1,600 updates, three closer rates, chosen on one seed; and IBM Model 1 that takes the nearest of several equal words, not the first",
            ("clause", "right"),
            range(100, 105),
            {TWICE: {}, "IBM Model 1": {}, NEAREST: {}},
            budget=1600,
            rates=(0.004, 0.006, 0.009),
        ),
        "dropout": Check(
            "dropout of 0.1, and three times as many pairs of sentences; three rates, chosen on one seed; seeds 200 to 206",
            ("clause", "right"),
            range(200, 207),
            {TWICE: {"dropout": 0.1, "drawn": 9000}, NEAREST: {}},
            rates=(0.004, 0.008, 0.016),
        ),
        "later": Check(
            "seeds 300 to 305, 3,200 updates, a rate of 0.006, which an earlier check found best for as many",
            ("blind", "adjective"),
            range(300, 306),
            {TWICE: {"rate": 0.006}},
            budget=1600,
        ),
        "fewer": Check(
            "2,000 captions in place of 8,000, for both; 1,600 updates; three rates; seeds 400 to 405",
            ("aligns",),
            range(400, 406),
            {TWICE: {"n": 2000}, NEAREST: {"n": 2000}},
            rates=(0.004, 0.008, 0.016),
        ),
        "partners": Check(
            "seeds 500 to 507, 1,600 updates, the old rate. Error rates leave out the German words that have no partner in English, such as most commas. The pronoun is chosen among er, sie and es alone. A model prefers a noun if its part of the weight on both nouns is larger than in the other sentence of the pair, where it is the wrong one",
            ("aligns", "blind", "adjective"),
            range(500, 508),
            {TWICE: {"rate": 0.008, "among": True, "relative": True, "linked": True}, NEAREST: {"linked": True}},
        ),
    },
    "beam_width": {
        "test-set": Check(
            "the 1,000 sentences of the test set of 2016, in ten parts, rather than the validation set, on which the translator's own search was chosen",
            ("beam", "curse", "cure", "search"),
            range(100, 110),
            BEAMS,
            settings={"split": "test_2016_flickr"},
        ),
        "other-way": Check(
            "the translator from German to English instead; the 1,000 sentences of the test set of 2016, in ten parts",
            ("beam", "curse", "cure", "search"),
            range(200, 210),
            BEAMS,
            settings={"split": "test_2016_flickr", "name": "multi30k-de-en"},
        ),
    },
    "hard_attention": {
        "longer": Check(
            "seeds 100 to 103, 800 updates, three rates for each variant around the old ones (REINFORCE with three times the updates: its old rate)",
            ("bonus", "bonus-hard", "equal", "time"),
            range(100, 104),
            HARD | {LONG: {"rate": 0.01}},
            budget=800,
            rates=(0.007, 0.014, 0.028),
        ),
        "falling": Check(
            "the bonus for entropy falls in a straight line from 0.2 to zero, so that its mean is the same, for soft and hard attention alike; three rates for each variant, chosen on one seed; seeds 200 to 205",
            ("early-bonus", "bonus-hard"),
            range(200, 206),
            HARD,
            settings={"falling": True},
            rates=dict.fromkeys(HARD, (0.01, 0.02, 0.04)) | {LONG: (0.005, 0.01, 0.02)},
        ),
        "again": Check(
            "seeds 300 to 305, 400 updates, three rates for each variant, chosen on one seed (REINFORCE with three times the updates: its old rate)",
            ("early-bonus",),
            range(300, 306),
            HARD | {LONG: {"rate": 0.01}},
            rates=(0.01, 0.02, 0.04),
        ),
        "many": Check(
            "seeds 500 to 529, 400 updates, the old rate",
            ("steady",),
            range(500, 530),
            {"soft, bonus": {"rate": 0.02}},
        ),
        "fresh": Check(
            "seeds 400 to 407, the same updates; closer rates for REINFORCE, and the old ones for the others",
            ("gumbel-bonus", "reinforce"),
            range(400, 408),
            {"gumbel": {"rate": 0.02}, "gumbel, bonus": {"rate": 0.02}, REINFORCE: {}, LONG: {"rate": 0.01}},
            rates={REINFORCE: (0.01, 0.014, 0.02, 0.028)},
        ),
        "wider": Check(
            "models of twice the width (64, and 128 in the states), 400 updates, three rates for each variant; seeds 600 to 606",
            ("steady", "gumbel-bonus", "reinforce"),
            range(600, 607),
            plain("hard_attention", "soft"),
            settings={"width": 64},
            rates=dict.fromkeys(HARD, (0.005, 0.01, 0.02)) | {LONG: (0.003, 0.006, 0.012)},
        ),
    },
    "initialisation": {
        "biases": Check(
            "600 updates; biases start with PyTorch's default as well, rather than with zeros; three closer rates for each start; seeds 100 to 109",
            ("later",),
            range(100, 110),
            {DEFAULT: {"biases": True}, LIBRARY: {}},
            rates=(0.0035, 0.005, 0.007),
        ),
        "deep": Check(
            "600 updates; four layers in the encoder and four in the decoder, rather than two in each; three rates for each start; seeds 200 to 206",
            ("later",),
            range(200, 207),
            {DEFAULT: {}, LIBRARY: {}},
            settings={"layers": 4},
            rates=(0.0025, 0.005, 0.008),
        ),
        "shallow": Check(
            "600 updates; one layer in the encoder and one in the decoder, rather than two in each; biases start with PyTorch's default as well, rather than with zeros; the best of four rates for each start (0.004 to 0.02); seeds 300 to 309",
            ("ahead",),
            range(300, 310),
            {DEFAULT: {"biases": True}, LIBRARY: {}},
            settings={"layers": 1},
            rates=(0.004, 0.007, 0.012, 0.02),
        ),
        "pre-norm": Check(
            "600 updates; layer norm before each sublayer rather than after it; biases start with PyTorch's default as well, rather than with zeros; the best of three rates for each start (0.004 to 0.016); seeds 400 to 409",
            ("ahead",),
            range(400, 410),
            {DEFAULT: {"biases": True}, LIBRARY: {}},
            settings={"norm_first": True},
            rates=(0.004, 0.008, 0.016),
        ),
    },
    "induction_heads": {
        "longer": Check(
            "2,400 updates; the best of two rates for one layer (0.001 and 0.003), and of three with four heads (0.0003 to 0.003); seeds 100 to 105",
            ("one", "wide"),
            range(100, 106),
            {"one layer": {}, WIDE: {}},
            budget=2400,
            rates={"one layer": (0.001, 0.003), WIDE: (0.0003, 0.001, 0.003)},
        ),
        "longer-two": Check(
            "1,600 updates; the best of two rates (0.001 and 0.003) for two layers, and 0.001, the old rate, with shifted keys; seeds 300 to 309",
            ("pair", "shift", "hidden", "before"),
            range(300, 310),
            {"two layers": {}, SHIFTED: {"rate": 0.001}},
            budget=1600,
            rates=(0.001, 0.003),
        ),
        "longer-hidden": Check(
            "3,200 updates; the best of two rates (0.001 and 0.003); seeds 400 to 405",
            ("needed",),
            range(400, 406),
            {NEVER: {}},
            budget=3200,
            rates=(0.001, 0.003),
        ),
        "heads": Check(
            "four heads in each layer, and eight in the wider one, 800 updates; the best of two rates (0.001 and 0.003; the wider layer and shifted keys: 0.001); seeds 200 to 206",
            ("two", "one", "wide", "shift", "control", "needed"),
            range(200, 207),
            {name: {"n_heads": 4} for name in ("one layer", "two layers", NEVER)}
            | {WIDE: {"n_heads": 8, "rate": 0.001}, SHIFTED: {"n_heads": 4, "rate": 0.001}},
            rates=(0.001, 0.003),
        ),
        "shorter-prompts": Check(
            "prompts of 12 pairs of a letter and a digit rather than 24, in training and in testing, for 800 updates; the best of four rates (0.001, 0.002, 0.003 and 0.005); seeds 500 to 509",
            ("pair", "hidden", "before"),
            range(500, 510),
            {"two layers": {"pairs": 12}},
            rates=(0.001, 0.002, 0.003, 0.005),
        ),
    },
    "label_smoothing": {
        "longer": Check(
            "seeds 100 to 109, 1,200 updates for all; the best of three rates for each of the two variants",
            ("samples", "calibration", "empty", "greedy"),
            range(100, 110),
            {name: {"times": 4} for name in plain("label_smoothing")},
            rates=(0.0025, 0.005, 0.01),
        ),
        "overfitting": Check(
            "800 captions to learn from rather than 2,500, and no dropout rather than 0.1; 300 updates, or 600; three rates for each variant, seeds 200 to 209",
            ("samples", "calibration", "empty", "greedy"),
            range(200, 210),
            plain("label_smoothing"),
            settings={"n": 800, "dropout": 0.0},
            rates=(0.0025, 0.005, 0.01),
        ),
    },
    "latent_attention": {
        "longer": Check(
            "seeds 100 to 103, 1,000 updates, three rates for each variant (an attention for each output: its old rate)",
            ("one-summary", "states", "average", "tie", "every-seed", "order"),
            range(100, 104),
            LATENT | {"four attentions": {"rate": 0.03}},
            budget=1000,
            rates=dict.fromkeys(LATENT, (0.015, 0.03, 0.06)) | {"one summary": (0.01, 0.02, 0.04)},
        ),
        "averages": Check(
            "the four small LSTMs give the mean of all their states rather than the last ones, and the words that are attended to in one step know their position; rates chosen on one seed; seeds 200 to 205",
            ("one-summary", "states", "average", "one-attention", "tie", "every-seed", "order"),
            range(200, 206),
            LATENT | {"four small LSTMs": {"sees": "four small LSTMs, averages"}, "words, attention": {"placed": True}},
            rates=dict.fromkeys(LATENT, (0.01, 0.03, 0.06))
            | {
                "one attention": (0.03, 0.06, 0.12),
                "words, attention": (0.01, 0.03, 0.06, 0.12),
                "words, latent attention": (0.01, 0.03, 0.06, 0.12),
            },
        ),
        "longest": Check(
            "seeds 300 to 309, 2,000 updates, three rates for each of the two variants",
            ("all-states",),
            range(300, 310),
            {"one summary": {}, "one average": {}},
            budget=2000,
            rates={"one summary": (0.007, 0.014, 0.028), "one average": (0.01, 0.02, 0.04)},
        ),
        "scaled": Check(
            "no dropout, and forget gates that begin with a bias of one, for both; the last states are multiplied by the root of the number of words, because the average is a sum divided by that root; three rates for each; seeds 400 to 415",
            ("all-states",),
            range(400, 416),
            {"one summary": {"scaled": True}, "one average": {}},
            settings={"dropout": 0.0, "gates": True},
            rates={"one summary": (0.007, 0.014, 0.028), "one average": (0.01, 0.03, 0.06)},
        ),
    },
    "layers": {
        "wide": Check(
            "width 512 rather than 256, and the median of 11 timings rather than 5; repetitions 100 to 109; PyTorch's own counter counts the multiplications",
            ("short", "arithmetic", "batch", "long"),
            range(100, 110),
            TIMED,
            budget=11,
            settings={"width": 512, "counted": True},
        ),
        "training": Check(
            "a forward and a backward pass, as in training, rather than the forward pass alone; width 128 rather than 256; the median of 11 timings rather than 5; repetitions 200 to 211",
            ("short", "arithmetic", "batch", "long"),
            range(200, 212),
            TIMED,
            budget=11,
            settings={"width": 128, "training": True},
        ),
    },
    "linear_attention": {
        "more-seeds": Check(
            "seeds 100 to 119, 600 updates, three closer rates for plain sums; the GRU gets twice as many updates and three lower rates",
            ("luck", "gru"),
            range(100, 120),
            {"plain sums": {}, "GRU": {"times": 2}},
            rates={"plain sums": (0.02, 0.03, 0.045), "GRU": (0.001, 0.003, 0.01)},
        ),
        "more-lists": Check(
            "64 lists in each of the 600 updates rather than 32, and two layers of GRU with 128 numbers each; three rates for each, seeds 200 to 219",
            ("luck", "gru"),
            range(200, 220),
            {"plain sums": {}, "GRU": {"layers": 2}},
            settings={"lists": 64},
            rates={"plain sums": (0.01, 0.03, 0.06), "GRU": (0.003, 0.01, 0.03)},
        ),
    },
    "luong": {
        "longer": Check(
            "seeds 100 to 107, 800 updates, three other rates around the old one, chosen on one seed",
            ("word",),
            range(100, 108),
            READ_LAST,
            budget=800,
            rates=(0.007, 0.014, 0.028),
        ),
        "bonus": Check(
            "both variants are trained with a bonus of 0.1 for a nat of the weights' entropy; seeds 200 to 209",
            ("word",),
            range(200, 210),
            READ_LAST,
            settings={"bonus": 0.1},
        ),
        "again": Check(
            "seeds 300 to 309, 400 updates, the old rate",
            ("early-word",),
            range(300, 310),
            {luong.BEFORE: {"rate": 0.02}, luong.WORD: {"rate": 0.02}},
        ),
        "wide": Check(
            "a model of twice the width (states of 128 numbers, word vectors of 64), 400 updates; three rates around half the old one; seeds 400 to 409",
            ("early-word",),
            range(400, 410),
            READ_LAST,
            settings={"H": 128},
            rates=(0.005, 0.01, 0.02),
        ),
    },
    "one_head_or_four": {
        "more-seeds": Check(
            "seeds 100 to 107, 500 updates, three rates with 500 updates, and with 2,000 rates of 0.01 (one head) and 0.02 (four); 1,000 new captions to test on rather than 300",
            ("faster", "closes"),
            range(100, 108),
            {"one head": {}, "four heads": {}, LATER[0]: {"rate": 0.01}, LATER[1]: {"rate": 0.02}},
            settings={"new": 1000},
            rates=(0.01, 0.02, 0.04),
        ),
        "fewer-captions": Check(
            "2,000 captions to learn from rather than 8,000, and 800 new ones to test on; three rates with 500 updates, and two with 2,000; seeds 200 to 205",
            ("faster", "closes"),
            range(200, 206),
            {"one head": {}, "four heads": {}, LATER[0]: {}, LATER[1]: {}},
            settings={"n": 2000, "new": 800},
            rates=dict.fromkeys(("one head", "four heads"), (0.01, 0.02, 0.04))
            | {LATER[0]: (0.005, 0.01), LATER[1]: (0.01, 0.02)},
        ),
    },
    "one_stack": {
        "longer": Check(
            "1,200 updates; the best of two rates (0.004 and 0.008) for one stack whose target follows its source, and 0.008, the old rate, for the others; seeds 100 to 105",
            ("sliding", "behind"),
            range(100, 106),
            {"one stack, sliding": {}, "one stack, fixed": {"rate": 0.008}, "two stacks": {"rate": 0.008}},
            budget=1200,
            rates=(0.004, 0.008),
        ),
        "fewer-captions": Check(
            "2,000 captions to learn from rather than 4,000, and dropout of 0.1; 600 updates, the old rate; seeds 200 to 206",
            ("sliding", "behind", "rotary"),
            range(200, 207),
            {name: {"rate": 0.008} for name in get_study("one_stack").arms},
            settings={"n": 2000, "dropout": 0.1},
        ),
        "thousand": Check(
            "1,000 captions to learn from rather than 4,000; 600 updates; the best of two rates (0.004 and 0.008) for either; seeds 500 to 509",
            ("today",),
            range(500, 510),
            plain("one_stack", "one stack, sliding", "one stack, fixed"),
            settings={"n": 1000},
            rates=(0.004, 0.008),
        ),
    },
    "one_vector": {
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
            ("rate", "reversed"),
            range(200, 204),
            plain("one_vector", "width 64") | {FEW: {"rate": 0.008}, MANY: {"rate": 0.016}},
            settings={"warm_up": True},
            rates=dict.fromkeys(("width 128", REVERSED), (0.008, 0.016, 0.032)) | {"width 192": (0.004, 0.008, 0.016)},
        ),
        "again": Check(
            "seeds 300 to 303, and a rate of 0.006 in place of the best one",
            ("rate",),
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
    },
    "pretraining": {
        "average": Check(
            "the classifier sees the average of all positions rather than the first one, dropout of 0.2 as it learns from labels; seeds 100 to 107",
            ("short", "long"),
            range(100, 108),
            {name: {} for name in (*SHORT, *LONGER)},
            settings={"dropout": 0.2, "average": True},
        ),
        "longer": Check(
            "for the short training, a model of width 96, and two rates (0.001 and 0.002); for the long one, 3,200 updates, and three rates (0.001 to 0.004); seeds 200 to 205",
            ("short", "long"),
            range(200, 206),
            {name: {"d_model": 96, "d_ff": 192} for name in SHORT} | {name: {"times": 8} for name in LONGER},
            rates=dict.fromkeys(SHORT, (0.001, 0.002)) | dict.fromkeys(LONGER, (0.001, 0.002, 0.004)),
        ),
    },
    "processor": {
        "smaller": Check(
            "arrays of 10 million numbers and a model of width 128; the median of three timings; eight rounds",
            ("one-array", "bfloat16"),
            range(100, 108),
            {name: {"n": 10_000_000} for name in ("one array", "two arrays")} | {name: {"n": 128} for name in STEPS},
            budget=3,
        ),
        "larger": Check(
            "arrays of 50 million numbers and a model of width 384; the median of three timings; six rounds",
            ("one-array", "bfloat16"),
            range(200, 206),
            {name: {"n": 50_000_000} for name in ("one array", "two arrays")} | {name: {"n": 384} for name in STEPS},
            budget=3,
        ),
        "narrow": Check(
            "a model of width 16 rather than 256, so that little of a step is matrix products; the median of 31 timings rather than 7; ten rounds, 300 to 309, rather than nine",
            ("emulated",),
            range(300, 310),
            {name: {"n": 16} for name in STEPS},
            budget=31,
        ),
        "wide": Check(
            "a model of width 512 rather than 256, so that most of a step is large matrix products and Adam's arrays are larger; the median of three timings rather than seven; five rounds, 400 to 404, rather than nine",
            ("emulated",),
            range(400, 405),
            {name: {"n": 512} for name in STEPS},
            budget=3,
        ),
    },
    "real_sentences": {
        "wider": Check(
            "from English to French, 5,000 pairs, 800 updates of 32 pairs rather than 64; the single vector and its decoder's states have 256 numbers rather than 128; this model gets the better of two rates (0.012 and 0.024), Bahdanau's has 0.016; seeds 100 to 104",
            ("attention",),
            range(100, 105),
            {VECTOR: {"hidden": 256}, "Bahdanau": {"rate": 0.016}},
            settings={"drawn": ("en", "fr", 5000), "size": 32},
            rates=(0.012, 0.024),
        ),
        "longer": Check(
            "from English to German, 1,200 updates of 32 pairs rather than 800 of 64, but from 3,000 pairs, so that a model sees each of them 13 times rather than 5; dropout of 0.1; a rate of 0.016 for both; seeds 200 to 204",
            ("attention",),
            range(200, 205),
            {VECTOR: {"rate": 0.016}, "Bahdanau": {"rate": 0.016}},
            budget=1200,
            settings={"drawn": ("en", "de", 3000), "size": 32, "dropout": 0.1},
        ),
        "narrow": Check(
            "states of 64 numbers rather than 128; 800 updates of 24 pairs rather than 64, from 5,000 pairs rather than 10,000; dropout of 0.1; the general score gets the best of three other rates (0.009, 0.016 and 0.03), chosen on two seeds, the dot product has 0.012; seeds 400 to 404",
            ("dot",),
            range(400, 405),
            {"Luong": {}, "Luong, dot product": {"rate": 0.012}},
            settings={"hidden": 64, "drawn": ("de", "en", 5000), "size": 24, "dropout": 0.1},
            rates={"Luong": (0.009, 0.016, 0.03)},
        ),
    },
    "recurrence": {
        "longer": Check(
            "2,000 updates; the best of three rates for the GRU, and 0.008, the old rate, for the Transformer; seeds 100 to 105",
            ("attention",),
            range(100, 106),
            {"GRU": {}, "Transformer": {"rate": 0.008}},
            budget=2000,
            rates=(0.008, 0.016, 0.024),
        ),
        "pre-norm": Check(
            "a Transformer with pre-norm, and the best of three rates; the GRU without attention reads the source in reverse, and both GRUs have the old rate, 0.016; seeds 200 to 206",
            ("attention", "sooner", "later"),
            range(200, 207),
            {"GRU": {"reverse_source": True, "rate": 0.016}}
            | {name: {"rate": 0.016} for name in WITH_ATTENTION}
            | {name: {"norm_first": True} for name in STACKS},
            rates=(0.004, 0.008, 0.016),
        ),
        "more-captions": Check(
            "8,000 captions rather than 4,000; the best of three closer rates for each with 500 updates, and with 1,000 the old ones; seeds 300 to 307",
            ("sooner", "later"),
            range(300, 308),
            {STACKS[0]: {}, STACKS[1]: {"rate": 0.008}, WITH_ATTENTION[0]: {}, WITH_ATTENTION[1]: {"rate": 0.016}},
            settings={"n": 8000},
            rates={STACKS[0]: (0.006, 0.008, 0.012), WITH_ATTENTION[0]: (0.012, 0.016, 0.024)},
        ),
    },
    "residuals": {
        "longer": Check(
            "1,200 updates, three closer rates for each stack, seeds 100 to 106; the gradient is that of the loss rather than a random one",
            ("degradation", "not-vanishing", "below", "depth"),
            range(100, 107),
            {name: {} for name in (SIX, HE, PRE_NORM, SIX_PRE_NORM)},
            budget=1200,
            settings={"of_loss": True},
            rates=NORMED | {SIX: (0.001, 0.002, 0.004), HE: (0.00015, 0.0003, 0.0006)},
        ),
        "longer-wiring": Check(
            "1,600 updates, four closer rates for each stack, seeds 200 to 207",
            ("wiring",),
            range(200, 208),
            {EYE: {}, EYE_RESIDUAL: {}},
            budget=1600,
            rates={EYE: (0.0001, 0.0002, 0.0004, 0.0008), EYE_RESIDUAL: (0.0003, 0.0006, 0.0012, 0.0024)},
        ),
        "wide": Check(
            "layers of width 64 rather than 32; after its first tenth, the rate falls to zero in a straight line; layers with pre-norm start with He's weights, too; the gradient is that of the loss; three rates for each stack, seeds 300 to 308",
            ("degradation", "not-vanishing", "wiring", "below", "depth"),
            range(300, 309),
            {name: {} for name in (SIX, HE, EYE, EYE_RESIDUAL)} | {name: {"start": "He, pre-norm"} for name in NORMED},
            settings={"width": 64, "cooled": True, "of_loss": True},
            rates=NORMED
            | dict.fromkeys((HE, EYE), (0.00015, 0.0003, 0.0006))
            | {SIX: (0.001, 0.003, 0.006), EYE_RESIDUAL: (0.0003, 0.0006, 0.0012)},
        ),
    },
    "scaling_law": {
        "shorter": Check(
            "at most 256,000 characters in place of 1,024,000; seeds 100 to 102; rates tuned again",
            ("alpha", "beta", "share", "extrapolation"),
            range(100, 103),
            plain("scaling_law"),
            budget=256_000,
        ),
        "german": Check(
            "German captions; at most 256,000 characters; seeds 200 to 202; rates tuned again",
            ("alpha", "beta", "share", "extrapolation"),
            range(200, 203),
            plain("scaling_law"),
            budget=256_000,
            settings={"german": True},
        ),
        "narrow": Check(
            "widths of 6, 12, 18 and 24 rather than 6 to 64, so that the largest run is of width 24, and the law has to foresee where a small model with much text ends; as many characters; rates tuned again (for the new width from 0.006, 0.02 and 0.06); seeds 300 to 302",
            ("too-high",),
            range(300, 303),
            plain("scaling_law", "width 36", "width 64") | {"width 18": {"width": 18}},
            rates=get_study("scaling_law").rates | {"width 18": (0.006, 0.02, 0.06)},
        ),
        "faster": Check(
            "rates that are not tuned on a tenth of the text, but fixed at twice the middle one of the study's three (0.06 for widths 6 and 12, 0.02 for 24 and 36, 0.006 for 64), in case short runs want higher ones and long runs lower ones; at most 512,000 characters in place of 1,024,000; seeds 400 to 403",
            ("too-high",),
            range(400, 404),
            {name: {"rate": 2 * rates[1]} for name, rates in get_study("scaling_law").rates.items()},
            budget=512_000,
        ),
    },
    "scores": {
        "longer": Check(
            "seeds 100 to 107, 1,000 updates, three rates for each of the two scores",
            ("location",),
            range(100, 108),
            {"dot": {}, "location": {}},
            budget=1000,
            rates=(0.007, 0.014, 0.028),
        ),
        "lengths": Check(
            "captions of 4 to 6 words; three rates for each of the two scores; seeds 300 to 309",
            ("location",),
            range(300, 310),
            {"dot": {}, "location": {}},
            settings={"drawn": {"n": 4000, "longest": 6}},
            rates=(0.01, 0.015, 0.025),
        ),
    },
    "small_data": {
        "fewer": Check(
            "from German to English, 1,500 pairs rather than 5,000, 600 updates of 32 pairs rather than 64, so that a model sees each of them 13 times rather than 8; R-Drop gets the better of two rates (0.006 and 0.012), the others have 0.008; seeds 300 to 304",
            tuple(get_study("small_data").findings),
            range(300, 305),
            {name: {"rate": 0.008} for name in plain("small_data", "R-Drop")} | {"R-Drop": {}},
            settings={"drawn": ("de", "en", 1500), "size": 32},
            rates=(0.006, 0.012),
        ),
        "pieces": Check(
            "from French to English, with 1,000 subwords rather than 2,000 and dropout of 0.1; 800 updates of 32 pairs rather than 600 of 64; a rate of 0.008 for both; seeds 400 to 404",
            ("r-drop",),
            range(400, 405),
            plain("small_data", "plain", "noise", "BPE-dropout"),
            budget=800,
            settings={"drawn": ("fr", "en", 5000, 1000), "size": 32, "dropout": 0.1, "rate": 0.008},
        ),
    },
    "speed": {
        "larger": Check(
            "a model four times as wide (512, with sixteen heads) and batches of 48; rounds 100 to 105, one pass each after one to warm up",
            ("training", "training-hf", "greedy", "beam", "sorting"),
            range(100, 106),
            {name: {} for name in SPEED},
            budget=1,
            settings={"sizes": (5000, 3, 512), "batch": 48},
        ),
        "lean": Check(
            "the others as fast as they can be: they too compute the loss in chunks and without padding, and Hugging Face decodes in inference mode and needn't forbid the end of a sentence; Adam is fused for all. Also 1,000 words, batches of 8, targets that are longer or shorter than their sources by up to four words, 40 tokens written, and the turns in reverse; rounds 200 to 207, the median of three passes",
            ("training", "training-hf", "greedy", "beam", "sorting"),
            range(200, 208),
            {name: {} for name in reversed(SPEED)},
            settings={"sizes": (1000, 3, 128), "batch": 8, "apart": 4, "length": 40, "lean": True},
        ),
        "vocabulary": Check(
            "37,000 words rather than 5,000, and one layer plus one rather than three plus three, so that more of the time goes into the logits, the same product for both; all 96 sentences in one batch; Hugging Face decodes in inference mode and needn't forbid the end of a sentence; rounds 300 to 304, the median of three passes",
            ("greedy-small",),
            range(300, 305),
            {"greedy, library, sorted": {}, "greedy, Hugging Face, sorted": {}},
            settings={"sizes": (37_000, 1, 128), "batch": 96, "lean": True},
        ),
        "paragraphs": Check(
            "100 tokens written for each sentence rather than 20, 200 words rather than 5,000, and all 96 sentences in one batch, so that more of the time goes into attention and the growing caches; Hugging Face decodes in inference mode and needn't forbid the end of a sentence; the turns in reverse; rounds 400 to 404, the median of three passes",
            ("greedy-small",),
            range(400, 405),
            {"greedy, Hugging Face, sorted": {}, "greedy, library, sorted": {}},
            settings={"sizes": (200, 3, 128), "batch": 96, "length": 100, "lean": True},
        ),
    },
    "todays_decoder": {
        "longer": Check(
            "1,000 updates; 0.016, the old rate, for today's decoder, and the best of two (0.008 and 0.016) for the others; seeds 100 to 105",
            ("jump", "far", "positions", "all"),
            range(100, 106),
            {"today": {"rate": 0.016}, **LEARNED},
            budget=1000,
            rates=(0.008, 0.016),
        ),
        "zeros": Check(
            "the vectors of the learned positions begin as zeros, and rotary positions have a base of 500,000 rather than 10,000; 400 updates; 0.016, the old rate, for today's decoder, and the best of three for the others; seeds 200 to 207",
            ("jump", "far", "positions", "all"),
            range(200, 208),
            {"today": {"rate": 0.016, "base": 500_000.0}} | {name: {"zeros": True} for name in LEARNED},
            rates=(0.008, 0.016, 0.032),
        ),
        "longer-layers": Check(
            "800 updates; the best of two rates (0.008 and 0.016); seeds 300 to 305",
            ("norm", "gate"),
            range(300, 306),
            {"today": {}, "layer norm": {}, "GELU": {}},
            budget=800,
            rates=(0.008, 0.016),
        ),
        "deeper": Check(
            "four layers rather than two, 400 updates; the best of two rates (0.008 and 0.016); seeds 400 to 405",
            ("norm", "gate"),
            range(400, 406),
            {"today": {}, "layer norm": {}, "GELU": {}},
            settings={"n_layers": 4},
            rates=(0.008, 0.016),
        ),
    },
    "trust": {
        "other-way": Check(
            "the translator from German to English instead; each tenth of the test set",
            ("token", "length", "beyond-length", "whole"),
            range(100, 110),
            plain("trust"),
            settings={"name": "multi30k-de-en", "parts": 10},
        ),
        "as-long": Check(
            "the sentences of the validation set, in tenths, and thresholds from the test set; for the probability per token, the threshold is the median of the 100 sentences whose length is closest",
            ("token", "length", "beyond-length"),
            range(200, 210),
            {"probability per token": {"alike": True}, "length of the source": {}},
            settings={"parts": 10, "swap": True},
        ),
    },
    "warm_up": {
        "longer": Check(
            "5,000 captions to learn from rather than 2,500. At the fixed peak rate of 0.01, 600 updates rather than 200; elsewhere the same numbers of updates, with the best of four closer peak rates (0.0035 to 0.01 without warm-up, 0.005 to 0.014 with it); seeds 100 to 105",
            WARM_UP,
            range(100, 106),
            plain("warm_up") | {name: {"times": 3} for name in plain("warm_up") if name.endswith("0.01")},
            settings={"n": 5000},
            rates=PEAKS,
        ),
        "late": Check(
            "the rate begins to fall only after forty updates, so that the variants differ in nothing but these and all reach their peak; Adam's betas are 0.9 and 0.999; the same updates; for the variants with twice the updates, the best of four peak rates (0.0035 to 0.01 without warm-up, 0.005 to 0.014 with it); seeds 200 to 207",
            ("gap", "first-step", "low-start", "twice"),
            range(200, 208),
            plain("warm_up", *warm_up.GRID),
            settings={"late": True, "betas": (0.9, 0.999)},
            rates=PEAKS,
        ),
    },
    "zapier": {
        "longer": Check(
            "seeds 100 to 107, 1,200 updates, three rates for each variant",
            ("position", "ahead", "lstm", "none"),
            range(100, 108),
            TITLES,
            budget=1200,
            rates=(0.01, 0.02, 0.04),
        ),
        "redrawn": Check(
            "every seed draws another split of the recipes; the LSTM's forget gates begin with a bias of one; three rates for each variant; seeds 200 to 209",
            ("position", "ahead", "lstm", "none"),
            range(200, 210),
            TITLES,
            settings={"redrawn": True, "gates": True},
            rates=(0.01, 0.03, 0.06),
        ),
    },
}
