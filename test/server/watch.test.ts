import t from 'tap';
import { setFrame } from '../../src/api/frames.ts';
import { Hub, piecesOf, type Watch } from '../../src/server/watch.ts';
import { until } from '../support/until.ts';

t.test('frames of any size come out whole and in order, in pieces of a limited size', async (t) => {
  const sizes = [1, 100, 65_000, 400, 70_000, 3, 200_000].concat(Array(2000).fill(90));
  const frames = sizes.map((size, index) => setFrame(1, `ns/s${index}`, Buffer.alloc(size, index)));
  let made = 0;
  function* counted(): Generator<Buffer> {
    for (const frame of frames) {
      made += 1;
      yield frame;
    }
  }
  const parts: Buffer[] = [];
  for (const piece of piecesOf(counted())) {
    if (parts.length === 0) t.ok(made <= 4, `${made} frames are made for the first piece`);
    parts.push(Buffer.from(piece));
  }
  t.ok(Buffer.concat(parts).equals(Buffer.concat(frames)));
  const large = frames.filter(({ length }) => length > 65_536).length;
  t.equal(parts.filter(({ length }) => length > 65_536).length, large);
  t.ok(parts.length < 12, `${parts.length} pieces`);
});

t.test('a change while watches are polled is polled for again', async (t) => {
  const hub = new Hub();
  const polled: string[] = [];
  const watch = (name: string, onFirst = () => {}): Watch => {
    const poll = (): void => void (polled.push(name) === 2 && onFirst());
    return { poll } as Watch;
  };
  hub.watches.add(watch('a'));
  hub.watches.add(watch('b', () => hub.changed()));
  hub.changed();
  hub.changed();
  await until(() => polled.length >= 4);
  await new Promise(setImmediate);
  t.equal(polled.join(' '), 'a b a b');
});
