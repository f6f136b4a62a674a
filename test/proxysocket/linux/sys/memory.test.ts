import { randomBytes } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { addressOf, type Pinned } from '../../../../src/proxysocket/linux/sys/memory.ts';
import { connectedPair, linuxTest, newSys } from '../../../support/linux-sys.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

linuxTest('memory stays where it is while it is held, whatever the collector does', (t) => {
  const sys = newSys();
  const [one, other] = connectedPair(sys);
  const held: Pinned[] = [];
  for (let round = 0; round < 12; round += 1) {
    const memory = sys.alloc(1 + Math.floor(Math.random() * 200));
    const content = randomBytes(memory.length);
    memory.bytes.set(content);
    const before = addressOf(memory);
    collectGarbage();
    for (let index = 0; index < 100; index += 1) sys.alloc(64).bytes.fill(0xff);
    if (addressOf(memory) !== before) t.fail('it has moved');
    sys.streams.write(one, memory, memory.length);
    const target = sys.alloc(memory.length);
    while (sys.streams.read(other, target, target.length) < 0);
    if (!content.equals(target.bytes)) t.fail(`round ${round}: other bytes`);
    if (round % 2 === 0) held.push(memory, target);
  }
  t.ok(held.length > 0);
  sys.sockets.close(one);
  sys.sockets.close(other);
});

linuxTest('new memory is empty, and its views are of the same bytes', (t) => {
  const memory = newSys().alloc(16);
  t.equal(Buffer.from(memory.bytes).toString('hex'), '0'.repeat(32));
  memory.view.setUint16(2, 0x1234);
  t.equal(memory.bytes[3], 0x34);
  t.equal(addressOf(memory, 8) - addressOf(memory), 8n);
});

linuxTest(
  'addresses of peers are kept until they are released, and their places used again',
  (t) => {
    const sys = newSys();
    const names = sys.peerNames();
    const from = sys.alloc(64);
    from.bytes.fill(1, 0, 32).fill(2, 32);
    const taken = Array.from({ length: 600 }, (_, index) =>
      names.take(from, index % 2 === 0 ? 0 : 32),
    );
    const contents = (): string => taken.map(({ memory, offset }) => memory.bytes[offset]).join('');
    t.equal(contents(), '12'.repeat(300));
    const [first] = taken;
    if (first === undefined) throw new Error('no name');
    names.release(first);
    const again = names.take(from, 32);
    t.equal(again, first, 'no memory is taken for it');
    t.equal(contents(), `2${'12'.repeat(300).slice(1)}`);
  },
);
