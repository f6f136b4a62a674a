/** What becomes of rules and addresses that someone else removes. */
import { eventually } from '../support/until.ts';
import { ALL, PORTALS, testEach } from './support/kinds.ts';
import { PRELOADED, type Program } from './support/program.ts';
import { CLUSTER, service, simple } from './support/services.ts';

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
    // The next comparison of all rules of nftables is further away than this waits.
    await program.repairAfter(() => here.sh(line));
    // The repair may have been one that was under way before the damage.
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

const IPTABLES = ['iptables-nft', 'iptables-legacy'] as const;

testEach('a client that came while the rules were gone is served', IPTABLES, async (t, here) => {
  const program = await here.start({ state: [service()] }).ready();
  process.kill(program.pid, 'SIGSTOP');
  await here.sh(`${here.kind.name} -t nat -F`);
  const asked = here.client.ask(WEB);
  await here.sh(
    `until conntrack -L -p tcp --state SYN_SENT 2>&1 | grep 'dst=10.96.0.10 '; do :; done`,
  );
  process.kill(program.pid, 'SIGCONT');
  t.match(await asked, /^pod/);
});

testEach('a single rule or element comes back', WITH_RULES, async (t, here) => {
  const state = [service(), simple('more', '10.96.0.77', 'TCP 80')];
  const program = await here.start({ state, before: PRELOADED }).ready();
  const lost = () => program.metric('portal_lost_total');
  for (const line of await here.kind.damageOne(here)) {
    const before = await lost();
    await program.repairAfter(() => here.sh(line));
    t.ok((await lost()) > before, line);
    t.match(await here.client.ask('10.96.0.77:80'), /^pod/);
    t.match(await here.client.ask(WEB), /^pod/);
  }
});
