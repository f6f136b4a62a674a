import { createServer } from 'node:net';
import { once } from 'node:events';
import t from 'tap';
import { parse } from '../../src/cli/parse.ts';
import { removeStaleRules, type Current } from '../../src/cli/sinks/stale-rules.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/userspace-options.ts';
import type { Exec } from '../../src/portal/exec.ts';
import { canaryAddress } from '../../src/portal/rules/canary.ts';
import type { Rival } from '../../src/portal/rules/rivals.ts';
import { captureLog } from '../support/captured-log.ts';
import { exits } from '../support/fake-exec.ts';
import { FakeIptables } from '../support/fake-iptables.ts';
import { FakeNft } from '../support/fake-nft.ts';
import { IptablesRig } from '../support/iptables-rig.ts';
import { NftablesRig } from '../support/nftables-rig.ts';
import { wants } from '../support/portals.ts';

const WEB = [wants('a/a', 'clusterIP 10.0.0.1:80')];

/** A host on which processes that have ended have left rules of every kind. */
class Host {
  readonly nft = new FakeNft();
  readonly iptables = new FakeIptables();
  readonly exec: Exec = (command) =>
    /^ip6?tables/.test(command.file) ? this.iptables.exec(command) : this.nft.exec(command);

  /** What the last cleaning has found in use. */
  rivals: readonly Rival[] = [];

  async leave(owner?: string): Promise<void> {
    const options = { exec: this.exec, ...(owner !== undefined && { owner }) };
    for (const rig of [
      new NftablesRig(options),
      new IptablesRig(options, 'nft'),
      new IptablesRig(options, 'legacy'),
    ]) {
      await rig.sync(WEB);
      await rig.portal.close();
    }
  }

  /** What rules there are. */
  get there(): string[] {
    const found = [...this.nft.tables.keys()];
    for (const flavor of ['nft', 'legacy'] as const) {
      const text = this.iptables.listing(4, flavor) + this.iptables.listing(6, flavor);
      if (text.includes('KUBE-')) found.push(flavor);
    }
    return found;
  }

  async clean(current: Current, flags = '') {
    const { log, lines } = await captureLog();
    const invocation = parse(`local to-userspace ${flags}`.trim().split(' '));
    if (invocation.kind !== 'run') throw new Error(invocation.kind);
    const options = invocation.sink.options as UserspaceOptions;
    this.rivals = await removeStaleRules(current, options, log, this.exec);
    return lines();
  }
}

t.test('what a former process has left with another portal goes', async (t) => {
  const cases: [Current, string][] = [
    [{ kind: 'nftables' }, 'kpng-userspace'],
    [{ kind: 'iptables', flavor: 'nft' }, 'nft'],
    [{ kind: 'iptables', flavor: 'legacy' }, 'legacy'],
  ];
  for (const [current, kept] of cases) {
    const host = new Host();
    await host.leave();
    t.same(host.there, ['kpng-userspace', 'nft', 'legacy']);
    const lines = await host.clean(current);
    t.same(host.there, [kept]);
    t.equal(lines.length, 2);
    t.match(lines, [{ level: 'info', msg: 'Removed stale rules of a previous process' }]);
    t.same(await host.clean(current), [], 'once');
  }
});

t.test('rules with other names stay', async (t) => {
  const host = new Host();
  await host.leave();
  const names = '--portal-table mine --portal-chain-prefix MINE';
  t.same(await host.clean({ kind: 'nftables' }, names), []);
  t.same(await host.clean({ kind: 'iptables', flavor: 'nft' }, names), []);
  t.equal(host.there.length, 3);
});

const onlyLinux = process.platform === 'linux' ? {} : { skip: 'only on linux' };

t.test('rules of a process that runs stay, and it is named', onlyLinux, async (t) => {
  const owner = 'abcdefabcdef';
  const { address, port } = canaryAddress(owner, 4);
  // Its canary, as if the rules led there.
  const server = createServer((socket) => {
    socket.on('error', () => undefined).end('kpng-userspace 4711\n');
  });
  server.listen(port, address);
  await once(server, 'listening');
  t.teardown(() => server.close());
  const host = new Host();
  await host.leave(owner);
  t.same(await host.clean({ kind: 'iptables', flavor: 'nft' }), []);
  const legacy = { what: 'the chains KUBE-* of iptables-legacy', pids: [4711] };
  t.strictSame(host.rivals, [
    { what: 'the nftables table inet kpng-userspace', pids: [4711] },
    legacy,
  ]);
  t.same(await host.clean({ kind: 'nftables' }), []);
  t.strictSame(host.rivals, [{ ...legacy, what: 'the chains KUBE-* of iptables-nft' }, legacy]);
  t.equal(host.there.length, 3);
  server.close();
  await once(server, 'close');
  await host.clean({ kind: 'nftables' });
  t.strictSame(host.rivals, []);
  t.same(host.there, ['kpng-userspace'], 'once it has ended, they go');
});

t.test('what cannot be removed is told, and programs that are missing are not', async (t) => {
  const host = new Host();
  await host.leave();
  host.iptables.broken = exits('Permission denied (you must be root)\n', 4);
  const lines = await host.clean({ kind: 'nftables' });
  t.match(lines, [
    { level: 'warn', what: /iptables-nft/, code: 'KPNG_PORTAL_PERMISSION' },
    { level: 'warn', what: /iptables-legacy/ },
  ]);
  host.nft.broken = { fails: 'missing' };
  for (const name of ['iptables', 'iptables-nft', 'iptables-legacy'])
    host.iptables.missing.add(name);
  t.same(await host.clean({ kind: 'iptables', flavor: 'nft' }), []);
});
