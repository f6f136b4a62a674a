/** Vectors of kpng's client library that here are the work of proxier and portal. */
import t from 'tap';
import { endpoint, entry, ports } from '../support/messages.ts';
import { addressRig } from '../support/proxier-rig.ts';

t.test(
  'V17 (kept, different): what changes of a service is found out, and nothing else is touched',
  async (t) => {
    const { engine, proxier, view } = addressRig(t);
    const sync = async (change: Parameters<typeof proxier.sync>[0]): Promise<string[]> => {
      engine.log.length = 0;
      await proxier.sync(change);
      return [...engine.log];
    };
    const service = (addresses: string[], ...texts: string[]) =>
      entry(
        'demo/web',
        { ips: { clusterIPs: { v4: addresses } }, ports: ports(...texts) },
        { pod: endpoint('10.9.0.1') },
      );
    const [p80, p81, p82] = ['a TCP 80 80', 'b TCP 81 81', 'c TCP 82 82'];
    await t.test(
      'different: there are no events; a port is a listener where it has addresses',
      async (t) => {
        t.strictSame(await sync(view.set(service(['10.0.0.1'], p80))), ['+10.0.0.1:80/TCP']);
      },
    );
    await t.test('kept: a port is added', async (t) => {
      t.strictSame(await sync(view.set(service(['10.0.0.1'], p80, p81))), ['+10.0.0.1:81/TCP']);
    });
    await t.test('kept: one port goes and another comes', async (t) => {
      const log = await sync(view.set(service(['10.0.0.1'], p80, p82)));
      t.strictSame(log.toSorted(), ['+10.0.0.1:82/TCP', '-10.0.0.1:81/TCP']);
    });
    await t.test('kept: an address is added, for each port', async (t) => {
      const log = await sync(view.set(service(['10.0.0.1', '10.0.0.2'], p80, p82)));
      t.strictSame(log.toSorted(), ['+10.0.0.2:80/TCP', '+10.0.0.2:82/TCP']);
    });
    await t.test('kept: the service is deleted', async (t) => {
      const log = await sync(view.remove('demo/web'));
      t.strictSame(log.toSorted(), [
        '-10.0.0.1:80/TCP',
        '-10.0.0.1:82/TCP',
        '-10.0.0.2:80/TCP',
        '-10.0.0.2:82/TCP',
      ]);
    });
  },
);
