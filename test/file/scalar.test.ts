import * as fc from 'fast-check';
import t from 'tap';
import { parse } from 'yaml';
import { flowText as text } from '../../src/file/write.ts';
import { holds } from '../support/property.ts';

const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.constantFrom('', 'yes', 'No', 'null', '~', '1e3', '0x10', '010', '1:30', '.5', '-', 'a: b'),
  fc.constantFrom(
    '10.0.0.1',
    '10.0.0.0/8',
    'fd00::1',
    '::',
    '# x',
    '&a',
    '*a',
    '!x',
    "'",
    '"',
    '=',
  ),
);

/** What kpng's reader (YAML 1.1) and ours (1.2) make of a text. */
function readings(yaml: string): unknown[] {
  return (['1.1', '1.2'] as const).map((version) => parse(yaml, { version }));
}

t.test('usual texts stand as they are', async (t) => {
  for (const plain of ['web', 'ClusterIP', 'web-0', 'topology.kubernetes.io/zone', '10.96.0.1']) {
    t.equal(text(plain), plain);
  }
  for (const quoted of ['', 'true', 'Null', 'n', '8080', 'fd00::1', 'a b', 'a,b', '-a']) {
    t.equal(text(quoted), JSON.stringify(quoted));
  }
});

t.test('any text is read as what it was, in lists and maps as well', async (t) => {
  holds(
    t,
    fc.property(anyText, anyText, (one, two) => {
      const map = { [one]: two, x: one };
      const expected = JSON.stringify([one, [one, two], map]);
      const yaml = `- ${text(one)}\n- ${text([one, two])}\n- ${text(map)}\n`;
      const sortedLike = (value: unknown): string => JSON.stringify(value);
      return readings(yaml).every((read) => {
        const [first, list, object] = read as [string, string[], Record<string, string>];
        const again = Object.fromEntries(Object.keys(map).map((key) => [key, object[key]]));
        return sortedLike([first, list, again]) === expected;
      });
    }),
  );
});
