/** What becomes of rules and addresses that someone else removes. */
import { eventually } from '../support/until.ts';
import { NODE } from './support/network.ts';
import { ALL, PORTALS, RULES, testEach } from './support/kinds.ts';
import type { Program } from './support/program.ts';
import { CLUSTER, NODE_PORTS, service, simple } from './support/services.ts';

const WEB = `${CLUSTER.v4}:80`;

const WITH_RULES = ALL.filter((name) => name !== 'address');
/** After so many repairs in a row a process waits, as it might fight someone. */
const QUICK_REPAIRS = 5;

testEach('what others remove is back before all is compared', PORTALS, async (t, here) => {
  let program: Program | undefined;
  for (const [index, line] of here.kind.damage.entries()) {
    if (program === undefined || index % QUICK_REPAIRS === 0) {
      await program?.end('SIGKILL');
      program = await here.start({ state: [service()] }).ready();
    }
    const ms = await program.repairAfter(() => here.sh(line));
    // The next comparison of all rules is further away.
    t.ok(ms < 10_000, `${line}: repaired after ${ms.toFixed(0)} ms`);
    // The repair may have been one that was under way before the damage; a connection that came too early stays lost.
    for (const [machine, place] of [
      [here.client, WEB],
      [here.node, `[${CLUSTER.v6}]:80`],
      [here.podB, `[${CLUSTER.v6}]:80`],
    ] as const) {
      const isServed = async () => (await machine.ask(place)).startsWith('pod');
      t.ok(await eventually(isServed), `${line}: ${machine.name}`);
    }
  }
});

testEach('a change repairs rules, which follow the addresses', RULES, async (t, here) => {
  const program = here.start({ state: [service()] });
  await program.ready();
  await here.sh(here.kind.removeAll);
  await program.serve(service(), simple('more', '10.96.0.77', 'TCP 80'));
  t.match(await here.client.ask('10.96.0.77:80'), /^pod/);
  t.match(await here.client.ask(WEB), /^pod/);

  await here.sh('sysctl -q -w net.ipv4.conf.eth0.promote_secondaries=1');
  await here.sh('ip address add 192.0.2.50/24 dev eth0');
  await here.sh(`ip address delete ${NODE.v4}/24 dev eth0`);
  await here.network.inside('client', 'ip', 'route replace default via 192.0.2.50'.split(' '));
  // Packets that keep their destination are sent to no address of the node.
  const hasAddress = async () => (await here.rules()).includes('192.0.2.50');
  t.ok(here.kind.name === 'transparent' || (await eventually(hasAddress)));
  t.match(await here.client.ask(WEB), /^pod/);
  t.match(await here.client.ask(`${CLUSTER.v4}:53/UDP`), /^pod/);
  t.match(await here.client.ask(`192.0.2.50:${NODE_PORTS.TCP}`), /^pod/);
});

testEach('a single rule or element comes back', WITH_RULES, async (t, here) => {
  const preload = `NODE_OPTIONS=--import=${import.meta.resolve('./support/preload.ts')}`;
  const state = [service(), simple('more', '10.96.0.77', 'TCP 80')];
  const program = await here.start({ state, before: ['env', preload] }).ready();
  const lost = () => program.metric('portal_lost_total');
  for (const line of await here.kind.damageOne(here)) {
    const before = await lost();
    await program.repairAfter(() => here.sh(line));
    t.equal(await lost(), before + 1, line);
    t.match(await here.client.ask('10.96.0.77:80'), /^pod/);
    t.match(await here.client.ask(WEB), /^pod/);
  }
  const before = await lost();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  t.equal(await lost(), before, 'what is whole is left alone');
});
