import t from 'tap';
import { ExecError, type ExecFailure } from '../../../src/portal/exec.ts';
import { NftablesBackend, nftablesProblem, NFT } from '../../../src/portal/nftables/backend.ts';
import { cleanUpNftables } from '../../../src/portal/nftables/left-over.ts';
import { nftablesCanary } from '../../../src/portal/nftables/portal.ts';
import { canaryAddress } from '../../../src/portal/rules/canary.ts';
import type { RuleConfig } from '../../../src/portal/rules/backend.ts';
import type { Elements } from '../../../src/portal/rules/elements.ts';
import { toolFailure } from '../../../src/portal/tool-failure.ts';
import { elementsOf } from '../../support/portals.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { FakeNft } from '../../support/fake-nft.ts';

const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.0.2.5', 6: '2001:db8::5' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['::/0'] },
};

const COMMAND = { file: 'nft', args: ['-f', '-'] };

function ledgerWith(...addresses: string[]): Elements {
  const elements = addresses.map((address) => {
    return { set: 'services4', key: `${address} . tcp . 80`, value: '40001' };
  });
  return elementsOf(...elements);
}

t.test('checking whether the kernel accepts items changes nothing', async (t) => {
  const nft = new FakeNft();
  const store = new NftablesBackend(nft.exec, 'kpng-userspace');
  await store.replace(CONFIG, ledgerWith('10.0.0.1'), false);
  const before = structuredClone(nft.tables);
  nft.refuses = (element) => element.startsWith('10.0.0.66');
  t.equal(await store.accepts(CONFIG, ledgerWith('10.0.0.2')), true);
  t.equal(await store.accepts(CONFIG, ledgerWith('10.0.0.2', '10.0.0.66')), false);
  t.strictSame(nft.tables, before);
  nft.broken = exits('Operation not permitted (you must be root)\n');
  await t.rejects(store.accepts(CONFIG, ledgerWith()), { code: 'KPNG_PORTAL_PERMISSION' });
});

const ROUTE = { mark: 0x40, table: 10_040, priority: 40 };

t.test('a process that takes the table over changes only what differs', async (t) => {
  const nft = new FakeNft();
  const store = new NftablesBackend(nft.exec, 'kpng-userspace');
  await store.replace(CONFIG, ledgerWith('10.0.0.1', '10.0.0.2'), false);
  const other = { ...CONFIG, owner: 'abcdef012345' };
  t.equal(await store.replace(other, ledgerWith('10.0.0.2'), true), CONFIG.owner, 'not its own');
  await store.replace(other, ledgerWith('10.0.0.2', '10.0.0.3'), false);
  const script = nft.scripts.at(-1) ?? '';
  t.notMatch(script, /10\.0\.0\.2|0\.0\.0\.0\/0|delete table/, 'what stays is left alone');
  const fresh = new FakeNft();
  const elements = ledgerWith('10.0.0.2', '10.0.0.3');
  await new NftablesBackend(fresh.exec, 'kpng-userspace').replace(other, elements, false);
  t.same(nft.tables, fresh.tables);
  t.equal(await store.difference(other, elements), undefined);
});

t.test(
  'after damage, all elements are written in one transaction, without listing them',
  async (t) => {
    const nft = new FakeNft();
    const store = new NftablesBackend(nft.exec, 'kpng-userspace');
    const elements = ledgerWith('10.0.0.1', '10.0.0.2');
    await store.replace(CONFIG, elements, false);
    const before = structuredClone(nft.tables);
    const { sets } = nft.table();
    sets.get('services4')?.delete('10.0.0.1 . tcp . 80');
    sets.get('services4')?.set('10.0.0.2 . tcp . 80', '4711');
    sets.get('empty4')?.set('10.0.0.9 . tcp . 80', '');
    nft.table().chains.set('refuse', []);
    const { length } = nft.commands;
    await store.replace(CONFIG, elements, true);
    t.same(nft.tables, before);
    t.notMatch(nft.scripts.at(-1), 'delete table');
    t.match(nft.commands.slice(length), [{ args: ['--terse'] }, { args: ['-f', '-'] }]);
  },
);

t.test('a table of another kind is taken over in one transaction, too', async (t) => {
  const nft = new FakeNft();
  const store = new NftablesBackend(nft.exec, 'kpng-userspace');
  const elements = elementsOf({ set: 'services4', key: '10.0.0.1 . tcp . 80', value: '' });
  await store.replace(CONFIG, ledgerWith('10.0.0.1', '10.0.0.2'), false);
  await store.replace({ ...CONFIG, route: ROUTE }, elements, false);
  t.notMatch(nft.scripts.at(-1), 'delete table');
  const fresh = new FakeNft();
  const config = { ...CONFIG, route: ROUTE };
  await new NftablesBackend(fresh.exec, 'kpng-userspace').replace(config, elements, false);
  t.same(nft.tables, fresh.tables);
});

t.test('a table that cannot be changed is replaced', async (t) => {
  const nft = new FakeNft();
  const hook = 'type nat hook prerouting priority 0; policy accept;';
  const stdin = `table inet kpng-userspace {\n\tchain nat-prerouting {\n${hook}\n}\n}\n`;
  await nft.exec({ ...COMMAND, stdin });
  const store = new NftablesBackend(nft.exec, 'kpng-userspace');
  await store.replace(CONFIG, ledgerWith('10.0.0.1'), false);
  t.match(nft.scripts.at(-1), 'delete table inet kpng-userspace');
  t.equal(await store.difference(CONFIG, ledgerWith('10.0.0.1')), undefined);
});

t.test('only the rules reach the canary’s port', async (t) => {
  for (const families of [[4], [6], [4, 6]] as const) {
    const family = families[0];
    const canary = nftablesCanary({ ...CONFIG, families });
    t.teardown(() => canary.close());
    const elements = await canary.open();
    const { address, port } = canaryAddress(CONFIG.owner, family);
    const proxyPort = elements.find(({ set }) => set === `services${family}`)?.value;
    t.strictSame(elements, [
      { set: `services${family}`, key: `${address} . tcp . ${port}`, value: proxyPort },
      { set: `proxy-ports${family}`, key: `tcp . ${proxyPort}`, value: '' },
    ]);
  }
});

function failing(failure: ExecFailure, stderr = ''): ExecError {
  return new ExecError(failure, COMMAND, { stderr, exitCode: 1 });
}

t.test('translates nft’s messages, with advice', (t) => {
  /** What nft 1.0.6 prints. */
  const texts: readonly [string, string, string, RegExp][] = [
    [
      'Operation not permitted (you must be root)\nnetlink: Error: cache initialization failed: Operation not permitted\n',
      'KPNG_PORTAL_PERMISSION',
      'host',
      /nft says "Operation not permitted \(you must be root\)" \(and 1 more\); give the process .*CAP_NET_ADMIN/,
    ],
    [
      '/dev/stdin:3:1-17: Error: Could not process rule: Operation not permitted\nadd table inet x\n^^^^^^\n',
      'KPNG_PORTAL_PERMISSION',
      'host',
      /CAP_NET_ADMIN/,
    ],
    [
      'nft: Unable to initialize Netlink socket: Protocol not supported\n',
      'KPNG_PORTAL_UNSUPPORTED',
      'host',
      /no nf_tables; use another --portal/,
    ],
    [
      '/dev/stdin:9:3-9: Error: syntax error, unexpected string\n',
      'KPNG_PORTAL_UNSUPPORTED',
      'content',
      /nft 0\.9\.7 and Linux 5\.9/,
    ],
    [
      '/dev/stdin:1:53-71: Error: Could not process rule: No such file or directory\n',
      'KPNG_PORTAL_FAILED',
      'content',
      /^changing the table: nft says "\/dev\/stdin:1:53-71: Error: Could not process rule: No such file or directory"$/,
    ],
    ['', 'KPNG_PORTAL_FAILED', 'content', /nft says ""/],
  ];
  for (const [stderr, code, blame, message] of texts) {
    const found = toolFailure(failing('exit', stderr), 'changing the table', NFT);
    t.match(found, { blame, code, message }, stderr);
  }
  t.end();
});

t.test('reports why nftables cannot be used, without changing anything', async (t) => {
  const nft = new FakeNft();
  t.equal(await nftablesProblem(nft.exec, [4, 6]), undefined);
  t.equal(nft.tables.size, 0);
  const noNat = new FakeExec(() =>
    exits('Error: Could not process rule: No such file or directory\n'),
  );
  t.match(await nftablesProblem(noNat.exec, [4]), { code: 'KPNG_PORTAL_UNSUPPORTED' });
  const missing = new FakeExec(() => ({ fails: 'missing' }));
  t.match(await nftablesProblem(missing.exec, [4]), { code: 'KPNG_PORTAL_TOOL_MISSING' });
});

t.test('refuses names that no table can have', async (t) => {
  const { exec, commands } = new FakeNft();
  for (const name of ['x; flush ruleset', '', '1st']) {
    await t.rejects(cleanUpNftables(exec, name, new Set()), { code: 'KPNG_USAGE' }, name);
    t.throws(() => new NftablesBackend(exec, name), { code: 'KPNG_USAGE' }, name);
  }
  t.same(commands, [], 'nft would run what follows a semicolon');
});
