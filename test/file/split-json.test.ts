import * as fc from 'fast-check';
import t from 'tap';
import { parseJson } from '../../src/file/json.ts';
import { offsetBefore } from '../../src/file/pieces.ts';
import { splitJson } from '../../src/file/split-json.ts';
import { holds } from '../support/property.ts';

t.test('a JSON object is cut into the items of one list and the rest', async (t) => {
  const text = '{"nodes": [1], "services": [ {"a": [1, "]"]} ,\n\t2, "x,y" ], "end": {}}\n';
  const split = splitJson(text, 'services');
  if (split === undefined) throw new Error('it can be cut');
  t.strictSame(
    split.items.map((item) => item.text),
    ['{"a": [1, "]"]}', '2', '"x,y"'],
  );
  for (const { text: item, start } of split.items) t.equal(text.indexOf(item), start);
  t.equal(split.rest, '{"nodes": [1], "services": [], "end": {}}\n');
  t.equal(split.keyAt, text.indexOf('"services"'));
  t.equal(offsetBefore(split, split.rest.indexOf('"end"')), text.indexOf('"end"'));
  t.equal(offsetBefore(split, split.rest.indexOf('"nodes"')), text.indexOf('"nodes"'));
});

t.test('what is not a JSON object with one such list is not cut', async (t) => {
  const texts = {
    empty: '',
    'a list': '[]',
    'no such key': '{"a": []}',
    'no list': '{"services": {}}',
    'the list is further in': '{"a": {"services": [1]}}',
    'twice the list': '{"services": [1], "services": [2]}',
    'keys without quotes': '{services: [1]}',
    'something behind': '{"services": [1]} x',
    'cut short in the list': '{"services": [1, {"a": 2}',
    'cut short in a text': '{"services": [1, "a',
    'cut short behind the list': '{"services": [1]',
    'no comma': '{"services": [{} {}]}',
  };
  for (const [name, text] of Object.entries(texts)) {
    t.equal(splitJson(text, 'services'), undefined, name);
  }
});

t.test('whatever the values are, the pieces are the values', async (t) => {
  holds(
    t,
    fc.property(
      fc.array(fc.jsonValue()),
      fc.jsonValue(),
      fc.constantFrom(undefined, 1, '\t'),
      (list, other, indent) => {
        const text = JSON.stringify({ other, list, end: other }, undefined, indent);
        const split = splitJson(text, 'list');
        const items = split?.items.map((item) => JSON.parse(item.text) as unknown);
        return (
          JSON.stringify(items) === JSON.stringify(list) &&
          JSON.stringify(JSON.parse(split?.rest ?? '')) ===
            JSON.stringify({ other, list: [], end: other })
        );
      },
    ),
  );
});

t.test('JSON in which a key occurs twice is told from other JSON', async (t) => {
  t.strictSame(parseJson('{"a": {"b": ":"}, "c:d": [{"a": 1}, null]}'), {
    kind: 'value',
    value: { a: { b: ':' }, 'c:d': [{ a: 1 }, null] },
  });
  t.strictSame(parseJson('{"__proto__": 1, "constructor": 2}').kind, 'value');
  for (const text of ['{"a": 1, "a": 1}', '[{"x": {"a": 1, "\\u0061": {}}}]']) {
    t.strictSame(parseJson(text), { kind: 'repeatedKey' }, text);
  }
  t.match(parseJson('{"a": 1,}'), { kind: 'notJson', offset: 8, reason: /^[^0-9]*$/ });
  t.match(parseJson('{"a": '), { kind: 'notJson' });
  const deep = 100_000;
  t.equal(parseJson('['.repeat(deep) + ']'.repeat(deep)).kind, 'value', 'nested deeply');
});
