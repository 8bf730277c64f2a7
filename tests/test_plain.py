"""What chapters build plainly: equal to what it stands for, and small enough to be typed again."""

import torch

from transformer_lib.plain import mask_predict as masks

PAD, MASK = masks.PAD, masks.MASK

# ---------------------------------------------------------------- all words at once


def small_translator(**sizes):
    """Eight-wide, without dropout."""
    torch.manual_seed(0)
    return masks.MaskPredict(20, **{"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2, "dropout": 0.0} | sizes)


def rows(*lengths, seed=0):
    """Random words, filled up."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(4, 20, (len(lengths), max(lengths)), generator=generator)
    return words.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD)


def test_every_number_of_hidden_words_is_as_likely():
    torch.manual_seed(0)
    target = rows(*[4] * 4000, 6)
    hidden = masks.hide(target)
    assert torch.equal(hidden == PAD, target == PAD)
    assert torch.equal(hidden[hidden != MASK], target[hidden != MASK])
    counts = torch.bincount((hidden[:-1] == MASK).sum(1), minlength=7)
    assert counts[0] == 0 and counts[5:].sum() == 0 and (counts[1:5] > 880).all()
    places = (hidden[:-1, :4] == MASK).float().mean(0)
    torch.testing.assert_close(places, torch.full((4,), 0.625), atol=0.04, rtol=0)


def test_a_hidden_word_sees_the_words_behind_it_but_no_padding():
    model = small_translator().eval()
    source, target = rows(5, 3), rows(4, 6, seed=1)
    target[:, 0] = MASK
    logits = model(source, target)
    other = target.clone()
    other[0, 3] = 4 if target[0, 3] != 4 else 5
    assert not torch.allclose(model(source, other)[0, 0], logits[0, 0])
    longer = [torch.cat([x, torch.full((2, 3), PAD)], 1) for x in (source, target)]
    torch.testing.assert_close(model(*longer)[:, :6], logits)
    alone = model(source[1:, :3], target[1:])
    torch.testing.assert_close(alone[0], logits[1])
    torch.testing.assert_close(model.read(longer[0])[1], model.read(source)[1])


def test_loss_is_that_of_the_hidden_words_and_of_the_length():
    model = small_translator().eval()
    source, target = rows(5, 3), rows(4, 6, seed=1)
    hidden = target.clone()
    hidden[0, 1] = hidden[1, 5] = MASK
    logits, lengths = model(source, hidden).log_softmax(-1), model.read(source)[1].log_softmax(-1)
    words = logits[0, 1, target[0, 1]] + logits[1, 5, target[1, 5]]
    expected = -words / 2 - 0.1 * (lengths[0, 4] + lengths[1, 6]) / 2
    torch.testing.assert_close(masks.mask_predict_loss(model, source, target, hidden, smoothing=0.0), expected)


@torch.no_grad()
def one_by_one(model, source, steps, n_lengths):
    """Mask-predict of one sentence with plain lists of words and of how certain each was when it was written."""
    found = []
    logits = model.read(source[None])[1][0]
    for n in sorted(range(1, len(logits)), key=lambda n: -float(logits[n]))[:n_lengths]:
        words, sure = [MASK] * n, [0.0] * n
        for step in range(steps):
            log_p = model(source[None], torch.tensor([words]))[0].log_softmax(-1)
            for i in range(n):
                if words[i] == MASK:
                    words[i] = max(range(4, 20), key=lambda word: float(log_p[i, word]))
                    rest = log_p[i, 4:].exp().sum().log()  # four ids are no words
                    sure[i] = float(log_p[i, words[i]] - rest)
            if step + 1 < steps:
                for i in sorted(range(n), key=sure.__getitem__)[: n * (steps - 1 - step) // steps]:
                    words[i] = MASK
        found.append((sum(sure) / n, words))
    return max(found)[1]


def test_batches_are_written_as_each_sentence_alone():
    model = small_translator().eval()
    torch.nn.init.normal_(model.length.weight)
    model.length.bias.data[8:] = -100.0  # short ones
    source = rows(5, 3, 7, 1, 4, 6)
    for steps in (1, 2, 3, 5):
        for n_lengths in (1, 3):
            found = masks.mask_predict(model, source, steps, n_lengths)
            for row, words in zip(source, found.tolist(), strict=True):
                expected = one_by_one(model, row[row != PAD], steps, n_lengths)
                assert [word for word in words if word != PAD] == expected


def test_a_few_sentences_are_learned_by_heart():
    model = small_translator(d_model=32, d_ff=64)
    source, target = rows(5, 3, 7, 4), rows(4, 6, 5, 3, seed=1)
    adam = torch.optim.Adam(model.parameters(), 0.003)
    for _ in range(300):
        loss = masks.mask_predict_loss(model, source, target, masks.hide(target), smoothing=0.0)
        adam.zero_grad()
        loss.backward()
        adam.step()
    model.eval()
    for steps in (1, 4):
        found = masks.mask_predict(model, source, steps, n_lengths=1)
        assert torch.equal(found[:, : target.shape[1]], target) and not found[:, target.shape[1] :].any()
