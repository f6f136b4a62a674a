import { createUdpAcceptor } from '../../udp/acceptor.ts';
import { LinuxUdpTransport } from '../udp/transport.ts';
import {
  canaryService,
  datagramEcho,
  keepTurning,
  loopback,
  newCage,
  type Cage,
} from './canary.ts';
import { expect, type Probe } from './probe.ts';

const SIZES = [0, 1, 1200, 1200, 1200, 700, 65_507];
const CLIENTS = 4;

/** The engine itself carries some datagrams of all sizes, several of them together. */
export const datagramProbe: Probe = {
  name: 'datagrams',
  async check(findings) {
    const cage = newCage(findings);
    const { sys, loop, context } = cage;
    const echo = datagramEcho(cage);
    const acceptor = createUdpAcceptor(new LinuxUdpTransport(loop, context), context);
    try {
      const owner = canaryService(cage, 'UDP', echo.port);
      const spec = { address: '127.0.0.1', port: 0, traffic: 'internal' } as const;
      const { boundPort } = await acceptor.listen(spec, owner);
      for (let count = 0; count < CLIENTS; count += 1) ask(cage, boundPort, echo.work);
      expect('the number of answers', owner.counters.datagramsOut, CLIENTS * SIZES.length);
    } finally {
      await acceptor.destroy();
      sys.sockets.close(echo.fd);
      loop.end();
    }
  },
};

function ask(cage: Cage, port: number, work: () => void): void {
  const { sys } = cage;
  const fd = sys.sockets.datagram(4);
  sys.sockets.connect(fd, loopback(sys, port));
  const memory = sys.alloc(65_536);
  const answers: number[] = [];
  try {
    for (const [index, size] of SIZES.entries()) {
      memory.bytes.fill(index + 1, 0, size);
      expect('the result of write', sys.streams.write(fd, memory, size), size);
    }
    keepTurning(
      cage,
      () => {
        work();
        memory.bytes.fill(0);
        const length = sys.streams.read(fd, memory, memory.length);
        if (length < 0) return false;
        const mark = answers.push(length);
        if (length > 0) expect('the last byte', memory.bytes[length - 1], mark);
        return answers.length === SIZES.length;
      },
      'an exchange of datagrams',
    );
    expect('the sizes of the answers', answers.join(' '), SIZES.join(' '));
  } finally {
    sys.sockets.close(fd);
  }
}
