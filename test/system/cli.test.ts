/** The program itself on the node of a test network: from a state file to clients on other machines. */
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Cli } from '../support/cli.ts';
import { shortDir } from '../support/short-dir.ts';
import { lab, type Lab } from './support/lab.ts';
import { NODE } from './support/network.ts';
import { ALL_KINDS, RULE_KINDS, testEachKind } from './support/rule-kinds.ts';
import { onNode, PLACES, proxy } from './support/web-proxy.ts';

/** What a server of the program answers on the node. */
async function page(here: Lab, cli: Cli, what: 'metrics' | 'health', path: string) {
  const url = String((await cli.line(`Serving ${what}`))['url']);
  return here.network.inside('node', 'curl', ['-sS', `${url}${path}`]);
}

testEachKind(
  'a state file is served, the rules stay when it ends, and cleanup removes them',
  async (t, here) => {
    const { kind } = here;
    await kind.addOthers(here.exec);
    const before = await here.rules();
    const cli = proxy(t, here, kind.flags);
    await cli.line('The first complete state is in place');
    for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
    const metrics = await page(here, cli, 'metrics', '/metrics');
    const portal = `portal="${kind.name.split('-')[0]}"`;
    t.match(metrics, new RegExp(String.raw`portal_up\{${portal}\} 1\n`));
    t.match(metrics, new RegExp(String.raw`build_info\{.*${portal}\} 1\n`));

    cli.kill('SIGTERM');
    t.equal((await cli.exited).code, 0);
    t.match(await here.rules(), kind.portalOf('10.96.0.10', 'tcp', 80));
    t.equal(await here.client.ask(PLACES[0] ?? ''), 'ECONNREFUSED');
    for (const time of ['first', 'second']) {
      t.match(await onNode(t, here, ['cleanup']).exited, { code: 0, stderr: '' }, time);
      t.equal(await here.rules(), before, time);
    }
  },
  ALL_KINDS,
);

testEachKind('--cleanup-on-exit removes the rules, with names of their own', async (t, here) => {
  await here.kind.addOthers(here.exec);
  const before = await here.rules();
  const names = '--portal-table mine --portal-chain-prefix MINE';
  const cli = proxy(t, here, `${here.kind.flags} ${names} --cleanup-on-exit`);
  await cli.line('The first complete state is in place');
  t.match(await here.rules(), /table inet mine|:MINE-PORTALS-HOST/);
  for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
  cli.kill('SIGTERM');
  t.equal((await cli.exited).code, 0);
  t.equal(await here.rules(), before);
});

testEachKind(
  'where there is no nft, auto chooses iptables, of the flavour that is in use',
  async (t, here) => {
    const { kind } = here;
    await kind.addOthers(here.exec);
    const path = pathWith(t, ['iptables', 'iptables-nft', 'iptables-legacy', 'conntrack']);
    const cli = proxy(t, here, '--portal auto', ['env', `PATH=${path}`]);
    t.match(await cli.line('Chose --portal iptables'), { reason: /no nft on the PATH/ });
    const found = await cli.line('Found iptables');
    t.match(found, { program: kind.name, reason: 'it has the chains of Kubernetes' });
    await cli.line('The first complete state is in place');
    t.match(await here.rules(), /:KUBE-PORTALS-HOST/);
    for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
  },
  ['iptables-nft', 'iptables-legacy'],
);

t.test('a new process with another portal removes what a killed process has left', async (t) => {
  const here = await lab(t);
  const kinds = RULE_KINDS.filter(({ name }) => name !== 'transparent').toReversed();
  for (const [index, kind] of kinds.entries()) {
    const cli = proxy(t, here, kind.flags);
    await cli.line('The first complete state is in place');
    if (index > 0) await cli.line('Removed stale rules of a previous process');
    for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
    for (const other of kinds) {
      const found = other.portalOf('10.96.0.10', 'tcp', 80).test(await other.rules(here.network));
      t.equal(found, other === kind, `${kind.name} is there, ${other.name}?`);
    }
    cli.kill('SIGKILL');
    await cli.exited;
  }
});

testEachKind(
  'settings of the host that keep packets from transparent sockets are named',
  async (t, here) => {
    await here.exec({ file: 'sysctl', args: ['-w', 'net.bridge.bridge-nf-call-iptables=1'] });
    const other = 'rule add fwmark 0x1c0/0x1c0 lookup main priority 7';
    await here.exec({ file: 'ip', args: other.split(' ') });
    const cli = proxy(t, here, here.kind.flags);
    const warned = await cli.line('Some clients cannot reach services with --portal transparent');
    t.match(warned, { reason: /sysctl net\.bridge\.bridge-nf-call-iptables to 0/ });
    const conflict = await cli.line('Writing packet rules failed; previous rules stay in force');
    t.match(conflict, { err: /routing rule 7 of another program.*--portal-mark/ });
    await here.exec({ file: 'ip', args: ['rule', 'delete', 'priority', '7'] });
    await cli.line('The first complete state is in place');
    t.match(await here.client.ask(PLACES[0] ?? ''), /^pod/);
  },
  ['transparent'],
);

t.test('two processes with rules of different kinds report, until one has ended', async (t) => {
  const here = await lab(t);
  const first = proxy(t, here, flagsOf('iptables-legacy'));
  await first.line('The first complete state is in place');
  const second = proxy(t, here, flagsOf('nftables'));
  const process = String.raw`process ${first.child.pid} writes the chains KUBE-\* of iptables-legacy,`;
  t.match(await second.line('Another process redirects the same traffic'), {
    code: 'KPNG_PORTAL_SHARED',
    err: new RegExp(process),
  });
  const health = await page(here, second, 'health', '/healthz');
  t.match(
    health,
    /"code":"portal-shared".*"another process has redirected the same traffic since /,
  );
  t.match(await page(here, second, 'metrics', '/metrics'), /portal_shared\{.*\} 1\n/);
  for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
  first.kill('SIGKILL');
  await second.line('No other process redirects the same traffic any more');
  for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
  t.match(await page(here, second, 'metrics', '/metrics'), /portal_shared\{.*\} 0\n/);
});

function flagsOf(name: string): string {
  return RULE_KINDS.find((kind) => kind.name === name)?.flags ?? '';
}

/** A folder to look for programs in, with these alone, and what belongs to them. */
function pathWith(t: Test, programs: readonly string[]): string {
  const folder = shortDir(t);
  for (const program of programs) {
    const names = program.startsWith('iptables')
      ? [program, program.replace(/^ip/, 'ip6')].flatMap((name) =>
          ['', '-save', '-restore'].map((end) => `${name}${end}`),
        )
      : [program];
    for (const name of names) symlinkSync(join('/usr/sbin', name), join(folder, name));
  }
  return folder;
}

t.test('without the right to change rules auto opens addresses, and cleanup fails', async (t) => {
  const here = await lab(t);
  const before = await here.ruleset();
  const unprivileged = ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin'];
  const cli = proxy(t, here, '--portal auto', unprivileged);
  t.match(await cli.line('Chose --portal address'), { code: 'KPNG_PORTAL_PERMISSION' });
  await cli.line('The first complete state is in place');
  t.match(await here.client.ask(`${NODE.v4}:30080`), /^pod/, 'node ports work');
  t.equal(await here.ruleset(), before);
  const outcome = await onNode(t, here, ['cleanup'], unprivileged).exited;
  t.match(outcome, { code: 1, stderr: /CAP_NET_ADMIN.*\(KPNG_PORTAL_PERMISSION\)/ });
});
