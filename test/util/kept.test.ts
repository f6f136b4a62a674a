import t from 'tap';
import { kept } from '../../src/util/kept.ts';

t.test('pieces are joined, in memory of their own', async (t) => {
  const joined = kept([Buffer.from('ab'), Buffer.from(''), Buffer.from('c')]);
  t.equal(joined.toString(), 'abc');
  t.equal(joined.buffer.byteLength, 3, 'nothing else is kept with it');
});

t.test('of nothing there is nothing', async (t) => {
  t.equal(kept([]).length, 0);
  t.equal(kept([Buffer.alloc(0)]), kept([]));
});
