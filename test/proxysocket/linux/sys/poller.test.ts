import * as k from '../../../../src/proxysocket/linux/sys/abi.ts';
import { INTEREST, READY } from '../../../../src/proxysocket/linux/sys/poller.ts';
import { connectedPair, linuxTest, newSys } from '../../../support/linux-sys.ts';

linuxTest('edges are reported once, levels again and again', (t) => {
  const sys = newSys();
  const poller = sys.poller(8);
  const [one, other] = connectedPair(sys);
  t.equal(poller.add(one, INTEREST.edges, 7), 0);
  const memory = sys.alloc(16);

  t.equal(poller.wait(0), 1);
  t.match([poller.descriptor(0), poller.mark(0), poller.mask(0)], [one, 7, READY.writable]);
  t.equal(poller.wait(0), 0, 'it is writable still, and nothing is new');
  sys.streams.write(other, memory, 4);
  t.equal(poller.wait(1000), 1);
  t.ok((poller.mask(0) & READY.readable) !== 0);
  t.equal(poller.wait(0), 0);
  sys.streams.write(other, memory, 4);
  t.equal(poller.wait(1000), 1, 'more has come');

  t.equal(poller.remove(one), 0);
  t.equal(poller.add(one, INTEREST.readable, -1), 0);
  t.equal(poller.wait(0), 1);
  t.equal(poller.wait(0), 1, 'it has not been read');
  t.equal(poller.mark(0), -1);

  t.equal(poller.add(one, INTEREST.readable, 0), -17, 'EEXIST');
  t.equal(poller.add(-1, INTEREST.readable, 0), -k.EBADF);
  sys.sockets.close(one);
  t.equal(poller.wait(0), 0, 'what is closed is not reported');
  sys.sockets.close(other);
  poller.close();
});
