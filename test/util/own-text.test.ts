import t from 'tap';
import { ownText } from '../../src/util/own-text.ts';

t.test('a part of a text does not keep the whole', async (t) => {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const used = (): number => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = used();
  const parts: string[] = [];
  for (let n = 0; n < 30; n += 1) {
    const whole = Buffer.alloc(1_000_000, 97 + n).toString();
    parts.push(ownText(whole.slice(500, 600)));
  }
  t.ok(used() - before < 5_000_000);
  t.equal(parts[3], 'd'.repeat(100));
});

t.test('it is the same text', (t) => {
  for (const text of ['', 'x', 'größer als 13 Zeichen', '\ud800 alone', 'a\0b']) {
    t.equal(ownText(text), text);
  }
  t.end();
});
