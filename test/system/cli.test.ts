/** What the program makes of a node: tools and rights that are missing, settings, other processes, dry runs. */
import { chmodSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { testPage } from '../support/run-page.ts';
import { shortDir } from '../support/short-dir.ts';
import { eventually } from '../support/until.ts';
import { lab } from './support/lab.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import { KINDS, testEach, type KindName } from './support/kinds.ts';
import { onNode, Program } from './support/program.ts';
import {
  CLUSTER,
  NODE_PORTS,
  OUTSIDE,
  pod,
  service,
  type StateService,
} from './support/services.ts';

const WEB = `${CLUSTER.v4}:80`;
const STATE = { state: [service()] };
const IPTABLES = ['iptables-nft', 'iptables-legacy'] as const;
const UNPRIVILEGED = ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin'];

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

testEach('without nft, auto takes iptables, of the flavour in use', IPTABLES, async (t, here) => {
  await here.sh(here.kind.addOthers);
  const path = pathWith(t, ['iptables', 'iptables-nft', 'iptables-legacy', 'conntrack']);
  const before = ['env', `PATH=${path}`];
  const program = new Program(t, here.network, { flags: '--portal=auto', before, ...STATE });
  t.match(await program.line('Chose --portal iptables'), { reason: /no nft on the PATH/ });
  const found = await program.line('Found iptables');
  t.match(found, { program: here.kind.name, reason: 'it has the chains of Kubernetes' });
  await program.ready();
  t.match(await here.rules(), /:KUBE-PORTALS-HOST/);
  for (const place of OUTSIDE) t.match(await here.client.ask(place), /^pod/, place);
});

t.test('a failed write is reported everywhere, and resolved by fixing the cause', async (t) => {
  const here = await lab(t);
  const path = pathWith(t, ['conntrack']);
  const nft = join(path, 'nft');
  writeFileSync(nft, `#!/bin/sh\nexec /usr/bin/${UNPRIVILEGED.join(' ')} /usr/sbin/nft "$@"\n`);
  chmodSync(nft, 0o755);
  const options = { flags: '--portal nftables', before: ['env', `PATH=${path}`] };
  const program = new Program(t, here.network, options);
  const code = 'KPNG_PORTAL_PERMISSION';
  t.match(await program.error(code), {
    msg: /^Writing packet rules failed/,
    err: /Operation not permitted.*; give the process the capability CAP_NET_ADMIN/,
  });
  const labels = { portal: 'nftables' };
  t.ok((await program.metric('portal_failures_total', { ...labels, code })) > 0);
  t.equal(await program.metric('portal_up', labels), 0);
  const sick = await program.page('health', '/healthz');
  t.match(sick, /^503 .*"portal-failing"\].*"the packet rules could not be written since /s);
  t.match(sick, code);

  rmSync(nft);
  symlinkSync('/usr/sbin/nft', nft);
  await program.serve(service([pod('pod-a')]));
  t.match(await here.client.ask(WEB), /^pod-a/);
  t.equal(await program.metric('portal_up', labels), 1);
  t.match(await program.page('health', '/healthz'), /^200 /);
});

testEach('names settings that keep packets from its sockets', ['transparent'], async (t, here) => {
  await here.sh('sysctl -w net.ipv4.conf.eth1.src_valid_mark=1');
  await here.sh('ip rule add fwmark 0x1c0/0x1c0 lookup main priority 7');
  const program = here.start(STATE);
  const warned = await program.line('Some clients cannot reach services with --portal transparent');
  t.match(warned, { reason: /sysctl net\.ipv4\.conf\.eth1\.src_valid_mark to 0/ });
  const conflict = await program.line('Writing packet rules failed; previous rules stay in force');
  t.match(conflict, { err: /routing rule 7 of another program.*--portal-mark/ });
  await here.sh('ip rule delete priority 7');
  await program.ready();
  t.match(await here.client.ask(WEB), /^pod/);
});

t.test('two processes with rules of different kinds report, until one has ended', async (t) => {
  const here = await lab(t);
  const start = (name: KindName) =>
    new Program(t, here.network, { flags: KINDS[name].flags, ...STATE });
  const first = await start('iptables-legacy').ready();
  const second = start('nftables');
  t.match(await second.line('Another process redirects the same traffic'), {
    code: 'KPNG_PORTAL_SHARED',
    err: new RegExp(String.raw`process ${first.pid} writes the chains KUBE-\* of iptables-legacy,`),
  });
  t.match(
    await second.page('health', '/healthz'),
    /"code":"portal-shared".*"another process has redirected the same traffic since /,
  );
  t.equal(await second.metric('portal_shared'), 1);
  for (const place of OUTSIDE) t.match(await here.client.ask(place), /^pod/, place);
  await first.end('SIGKILL');
  await second.line('No other process redirects the same traffic any more');
  for (const place of OUTSIDE) t.match(await here.client.ask(place), /^pod/, place);
  t.equal(await second.metric('portal_shared'), 0);
});

testEach('serves what it can without the right to add addresses', ['address'], async (t, here) => {
  const before = await here.state();
  const program = here.start({ before: UNPRIVILEGED, ...STATE });
  const failed = await program.line(
    'Changing service addresses on the interface failed; present addresses stay',
  );
  t.match(failed, {
    code: 'KPNG_PORTAL_PERMISSION',
    err: /making the interface kpng0.*CAP_NET_ADMIN/,
  });
  await program.line('Applying a change failed; retrying');
  t.match(await here.client.ask(`${NODE.v4}:${NODE_PORTS.TCP}`), /^pod/, 'node ports work');
  t.match(
    await program.page('health', '/healthz'),
    /the service addresses could not be put on the interface since .* \(KPNG_PORTAL_PERM/,
  );
  t.equal(await here.state(), before);
});

testEach('an existing interface keeps its own addresses', ['address'], async (t, here) => {
  for (const name of ['lo', 'eth1', 'bridge']) {
    const before = await here.state();
    const flags = `--portal=address --portal-interface=${name}`;
    const start = (...state: StateService[]) =>
      new Program(t, here.network, { flags, state }).ready();
    const first = await start(service());
    t.match(await here.client.ask(WEB), /^pod/, name);
    await first.end('SIGKILL');
    await here.sh(`ip address add 10.96.0.77/32 dev ${name}`);
    const foreign = service([pod('pod-b')], {
      name: 'foreign',
      ips: { clusterips: { v4: ['10.96.0.77', NODE.v4] } },
    });
    const second = await start(foreign);
    t.match(await here.client.ask('10.96.0.77:80'), /^pod-b/);
    t.match(await here.client.ask(`${NODE.v4}:80`), /^pod-b/, 'an address of the node itself');
    t.equal(await here.client.askInVain(WEB), 'silence', 'what is not wanted is gone');
    await second.end('SIGKILL');
    t.match(await onNode(t, here.network, ['cleanup']).exited, { code: 0, stderr: '' });
    t.match(await here.sh(`ip address show dev ${name}`), '10.96.0.77/32');
    await here.sh(`ip address delete 10.96.0.77/32 dev ${name}`);
    t.equal(await here.state(), before, name);
  }
});

t.test('what a dry run prints, a shell can run', async (t) => {
  const here = await lab(t);
  const before = await here.state();
  const dry = (flags: string) =>
    new Program(t, here.network, { flags: `${flags} --dry-run`, ...STATE }).exited;
  const nft = await dry('--portal=nftables');
  t.equal(nft.code, 0);
  t.equal(await here.state(), before, 'nothing was done');
  await here.sh('sh -e', nft.stdout);
  t.match(await here.ruleset(), /10\.96\.0\.10 \. tcp \. 80 : 500\d\d/);
  await here.sh('nft flush ruleset');

  await here.sh('sh -e', (await dry('--portal-interface=lo')).stdout);
  t.match(await here.sh('ip address show dev lo'), /inet 10\.96\.0\.10\/32 metric 27504/);
  const outcome = await onNode(t, here.network, ['cleanup']).exited;
  t.match(outcome, { code: 0, stdout: /on lo any more/ });
  t.equal(await here.state(), before);
});

testEach('serves clients behind the first bridge of a host', ['transparent'], async (t, here) => {
  await here.start({ state: [service()], machine: 'world' }).ready();
  t.match(await here.node.ask(WEB), /^pod/);
  const { v4 } = ADDRESSES.world;
  const commands = `link add bridge type bridge
    link set bridge up
    link set eth0 master bridge
    address delete ${v4}/24 dev eth0
    address add ${v4}/24 dev bridge
    route add default via ${NODE.world4}`;
  await here.network.inside('world', 'ip', ['-batch', '-'], commands);
  t.ok(await eventually(async () => (await here.node.ask(WEB)).startsWith('pod')));
});

// Its commands that write packet rules and addresses, in a namespace of their own.
testPage('docs/reference/portals.md', () => ({
  mark: 'in a namespace',
  inside: ['unshare', '--net'],
  setup: [
    'ip link set lo up',
    'ip link add node type bridge',
    'ip address add 192.0.2.5/24 dev node',
    'ip link set node up',
    'ip route add default dev node',
  ],
}));
