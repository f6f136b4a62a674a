import t from 'tap';
import { lab } from './support/lab.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import { simple } from './support/services.ts';

t.test('a service that is its own endpoint, where rules lead to it, costs nothing', async (t) => {
  const here = await lab(t);
  const proxy = here.start();
  const more = { nodePort: 8080 };
  await proxy.sync({
    'd/loop': simple('10.96.0.1', 'TCP 8080', ['10.96.0.1']),
    'd/by-node-port': simple('10.96.0.2', 'TCP 80', [NODE.v4], more),
    'd/in-part': simple('10.96.0.3', 'TCP 8080', ['10.96.0.3', ADDRESSES['pod-a'].v4]),
    'd/good': simple('10.96.0.4', 'TCP 80'),
  });
  const before = await proxy.usage();
  for (const machine of [here.client, here.node]) {
    for (const place of ['10.96.0.1:8080', '10.96.0.2:80']) {
      t.equal(await machine.ask(place), 'ECONNRESET', `${machine.name} at ${place}`);
    }
    for (const place of ['10.96.0.3:8080', '10.96.0.3:8080', '10.96.0.4:80']) {
      t.match(await machine.ask(place), /^pod-a/, `${machine.name} at ${place}`);
    }
  }
  // In a circle, each of four clients would take as many connections as there are descriptors.
  const { user, system } = await proxy.usage();
  const ms = (user + system - before.user - before.system) / 1000;
  t.ok(ms < 700, `${ms} ms of CPU time`);
});
