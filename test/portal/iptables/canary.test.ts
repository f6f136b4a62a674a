import { createServer, type Server } from 'node:net';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { iptablesCanary } from '../../../src/portal/iptables/canary.ts';
import type { Rule } from '../../../src/portal/iptables/chains.ts';
import { canaryAddress } from '../../../src/portal/rules/canary.ts';
import type { RuleConfig } from '../../../src/portal/rules/items.ts';

function config(owner: string): RuleConfig {
  return {
    owner,
    families: [4],
    targets: { 4: '192.0.2.5', 6: undefined },
    nodePortNetworks: { 4: ['0.0.0.0/0'], 6: [] },
  };
}

async function open(t: Test, owner: string) {
  const canary = iptablesCanary(config(owner), 'KUBE');
  t.teardown(() => canary.close());
  return { canary, rules: await canary.open() };
}

/** Somebody who listens where the rules lead to stands in for the rules of nat; Linux has all of 127.0.0.0/8. */
async function standIn(t: Test, owner: string): Promise<Server[]> {
  const { address, port } = canaryAddress(owner, 4);
  const servers = await Promise.all(
    [port, port + 1].map(async (each) => {
      const server = createServer((socket) => socket.on('error', () => undefined).resume());
      server.listen(each, address);
      await once(server, 'listening');
      return server;
    }),
  );
  t.teardown(() => servers.forEach((server) => server.close()));
  return servers;
}

/** The chains that a rule is in, and where it leads. */
function waysOf(rules: readonly Rule[], port: string): string[] {
  return rules
    .filter(({ key }) => new RegExp(`--dport ${port}(?: |$)`).test(key))
    .map(({ set, value }) => `${set} ${value}`);
}

t.test('packets of the canary pass all our chains', async (t) => {
  const { rules } = await open(t, 'abc');
  const { port } = canaryAddress('abc', 4);
  const proxyPort = rules.find(
    ({ set, value }) => set === 'portals-container4' && /^\d/.test(value),
  );
  t.strictSame(waysOf(rules, String(port)), [
    'portals-host4 -j KUBE-PORTALS-CONTAINER',
    `portals-container4 ${proxyPort?.value}`,
  ]);
  t.strictSame(waysOf(rules, String(port + 1)), [
    'portals-host4 -j KUBE-NODEPORT-HOST',
    'nodeport-host4 -j KUBE-NODEPORT-CONTAINER',
    `nodeport-container4 ${proxyPort?.value}`,
  ]);
  const out = rules.find(({ set }) => set === 'non-local-first4');
  const outPort = /--dport (\d+)/.exec(out?.key ?? '')?.[1] ?? '';
  t.match(out, { key: /-o lo$/, value: '-j REJECT --reject-with tcp-reset' });
  t.strictSame(waysOf(rules, outPort).slice(0, 3), [
    'refuse4 -j KUBE-NODEPORT-REJECT',
    'nodeport-refuse4 -j KUBE-PROXY-PORTS',
    'proxy-ports4 -j KUBE-NODEPORT-NON-LOCAL',
  ]);
  t.match(
    rules.filter(({ key }) => key.endsWith('-i lo')),
    [{ set: 'refuse4', value: /REJECT/ }],
    'and one is refused on its way in',
  );
  t.match(
    rules.find(({ key }) => key.endsWith(`--dport ${proxyPort?.value}`)),
    { set: 'proxy-ports4', value: /REJECT/ },
    'nobody reaches its proxy port directly',
  );
});

const onlyLinux = process.platform === 'linux' ? {} : { skip: 'only on linux' };

t.test('without rules it is gone', async (t) => {
  const { canary } = await open(t, 'gone');
  t.equal(await canary.probe(), 'gone');
});

t.test('with rules of nat only, refusals are missed', onlyLinux, async (t) => {
  const { canary } = await open(t, 'nat-only');
  await standIn(t, 'nat-only');
  t.equal(await canary.probe(), 'gone');
});

t.test('of another process only the canary itself counts', onlyLinux, async (t) => {
  const { canary } = await open(t, 'mine');
  const [first, second] = await standIn(t, 'other');
  second?.close();
  t.equal(await canary.probe('other'), 'alive');
  first?.close();
  if (first !== undefined) await once(first, 'close');
  t.equal(await canary.probe('other'), 'gone');
});

t.test('with all rules it is alive', onlyLinux, async (t) => {
  const { canary } = await open(t, 'alive');
  await standIn(t, 'alive');
  // What refuses connections stands in for the rules of filter.
  canary.close();
  t.equal(await canary.probe(), 'alive');
});

t.test('can be closed twice', async (t) => {
  const { canary } = await open(t, 'twice');
  canary.close();
  canary.close();
  t.pass();
});
