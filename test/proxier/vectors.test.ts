/** Vectors of kpng's client library that here are the work of proxier and portal. */
import t from 'tap';
import { endpoint, entry, ports } from '../support/messages.ts';
import { addressRig } from '../support/proxier-rig.ts';

t.test(
  'V17 (kept, different): what changes of a service is found out, and nothing else is touched',
  async (t) => {
    const rig = addressRig();
    t.teardown(() => rig.close());
    const { engine, proxier, view } = rig;
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

t.test(
  'V18 (different): flows of endpoints are sessions of ours, and end without conntrack',
  async (t) => {
    const rig = addressRig();
    t.teardown(() => rig.close());
    const { engine, portal, proxier, view } = rig;
    const service = (...addresses: string[]) =>
      entry(
        'demo/dns',
        {
          ips: { clusterIPs: { v4: ['10.0.0.1'] } },
          ports: ports('p1 TCP 80 8080', 'p2 UDP 53 5353'),
        },
        Object.fromEntries(
          addresses.map((address) => [
            address,
            endpoint(address, {
              portOverrides: [
                { name: 'p1', port: 8080 },
                { name: 'p2', port: 5353 },
              ],
            }),
          ]),
        ),
      );
    await proxier.sync(view.set(service('10.1.2.1')));
    const { plans } = portal;
    const opened = engine.log.length;
    const udp = (): readonly string[] | undefined =>
      engine.batches
        .at(-1)
        ?.flatMap((change) => (change.kind === 'endpoints' ? [change] : []))
        .find(({ name }) => name === 'demo/dns:p2')
        ?.endpoints.map(({ address, port }) => `${address}:${port}`);
    await proxier.sync(view.set(service('10.1.2.1', '10.1.3.1')));
    t.strictSame(udp(), ['10.1.2.1:5353', '10.1.3.1:5353']);
    await proxier.sync(view.set(service('10.1.2.1')));
    t.strictSame(udp(), ['10.1.2.1:5353'], 'the engine ends the sessions of the other');
    t.equal(portal.plans, plans, 'no portal was asked, so no program was run');
    t.equal(engine.log.length, opened, 'and no socket was opened or closed');
  },
);
