import { connectFailed } from '../../../../src/proxysocket/events.ts';
import { createDataPlane } from '../../../../src/proxysocket/linux/engine.ts';
import type { Sockaddr } from '../../../../src/proxysocket/linux/sys/address.ts';
import { DEFAULT_LIMITS } from '../../../../src/proxysocket/limits.ts';
import { systemClock } from '../../../../src/util/clock.ts';
import { inlineLoop } from '../../../support/engine-under-test.ts';
import { linuxTest, newSys } from '../../../support/linux-sys.ts';
import { collect, freePort } from '../../../support/sockets.ts';
import { endpointAt, namedServer, request } from '../../../support/tcp-peers.ts';
import { almostOne } from '../../../support/random.ts';
import { tcpSpec } from '../../../support/tcp-rig.ts';

linuxTest('a connection to itself is a refused one', async (t) => {
  const sys = newSys();
  const gone = endpointAt(await freePort());
  const good = await namedServer(t, 'good');
  // As the kernel does by chance: our side gets the port that it connects to.
  const connect = sys.sockets.connect.bind(sys.sockets);
  sys.sockets.connect = (fd: number, to: Sockaddr) => {
    if (to.memory.view.getUint16(2) === gone.port) {
      sys.sockets.bind(fd, sys.sockaddr(gone));
    }
    return connect(fd, to);
  };
  const failed = collect(t, connectFailed);
  const engine = createDataPlane(inlineLoop(t, sys), {
    limits: DEFAULT_LIMITS,
    clock: systemClock,
    random: almostOne,
    descriptorLimit: 1000,
  });
  t.teardown(() => engine.destroy());
  await engine.apply([{ kind: 'set', spec: tcpSpec([gone, good.endpoint]) }]);
  const [listener] = engine.snapshot()[0]?.listeners ?? [];
  const port = listener?.state === 'listening' ? listener.boundPort : 0;
  t.equal(await request(t, port), 'good');
  t.match(failed, [{ cause: 'refused', error: /itself/ }]);
  t.match(engine.snapshot(), [{ counters: { retries: 1, bytesOut: 4 } }]);
});
