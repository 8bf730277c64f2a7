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

-- A picture that stands alone is centred, and stays on the page of what follows: its caption, if it has one.
function Para(one)
  if #one.content == 1 and one.content[1].t == "Image" then
    local picture = one.content[1]
    local width = picture.attributes.width or "82%"
    local image = 'image("' .. picture.src .. '", width: ' .. width .. ")"
    return pandoc.RawBlock("typst", "#block(width: 100%, sticky: true, align(center, " .. image .. "))")
  end
end
