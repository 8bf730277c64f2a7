-- What the book's Markdown marks for print: asides, captions and parts.

local function wrapped(before, blocks)
  table.insert(blocks, 1, pandoc.RawBlock("typst", before .. "["))
  table.insert(blocks, pandoc.RawBlock("typst", "]"))
  return blocks
end

function Div(one)
  for _, kind in ipairs({ "aside", "caption", "part" }) do
    if one.classes:includes(kind) then
      return wrapped("#" .. kind, one.content)
    end
  end
end

-- A picture that stands alone is centred; its caption, if it has one, follows as an aside of its own.
function Para(one)
  if #one.content == 1 and one.content[1].t == "Image" then
    return pandoc.RawBlock("typst", '#align(center, image("' .. one.content[1].src .. '", width: 82%))')
  end
end
