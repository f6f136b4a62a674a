import { appendFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { WindowsInterface } from '../../../src/portal/windows/addresses.ts';
import { AddressLedger } from '../../../src/portal/windows/ledger.ts';
import { HastyClock } from '../../support/fake-clock.ts';
import { FakeNetsh } from '../../support/fake-netsh.ts';

const NIC = 'vEthernet (HNS Internal NIC)';
const BOOTED = 1_700_000_000_000;

/** A host with one interface of ours, and any number of processes of ours one after the other. The first has opened it. */
async function opened(t: Test, name = NIC) {
  const netsh = new FakeNetsh();
  if (name !== NIC) netsh.interfaces.set(name, []);
  const path = join(t.testdir({}), 'ledger.txt');
  const process = (bootedAt = BOOTED, file = path) =>
    new WindowsInterface(name, new AddressLedger(file, () => bootedAt), {
      exec: netsh.exec,
      clock: new HastyClock(),
      has: netsh.has,
      host: netsh.host,
    });
  const subject = process();
  await subject.open();
  return { netsh, path, process, subject };
}

t.test('W2: a missing address is added, as a network of its own', async (t) => {
  const { netsh, subject } = await opened(t);
  const before = netsh.commands.length;
  t.same(await subject.change('add', ['172.16.0.1']), {
    existing: ['172.16.0.1'],
    refused: new Map(),
  });
  t.equal(netsh.commands.length, before, 'nothing is run for an existing one');
  t.same(await subject.change('add', ['10.96.0.10']), { existing: [], refused: new Map() });
  t.same(netsh.on(NIC).at(-1), { address: '10.96.0.10', prefix: 32, skipAsSource: true });
  await subject.change('add', ['fd00::10']);
  t.same(netsh.on(NIC).at(-1), { address: 'fd00::10', prefix: 128, skipAsSource: true });
  const added = 'skipassource=true store=active';
  t.same(
    netsh.vectors.map((args) => args.join(' ')),
    [
      `interface ipv4 add address name=${NIC} address=10.96.0.10 mask=255.255.255.255 ${added}`,
      `interface ipv6 add address interface=${NIC} address=fd00::10/128 ${added}`,
    ],
  );
});

t.test('W2: an address that netsh rejects is refused, and no other', async (t) => {
  const { netsh, subject } = await opened(t);
  netsh.refused.add('10.96.0.66');
  for (const others of [[], ['10.96.0.1', '10.96.0.3']]) {
    const { existing, refused } = await subject.change('add', ['10.96.0.66', ...others]);
    t.same(existing, []);
    t.same([...refused.keys()], ['10.96.0.66']);
    t.match(refused.get('10.96.0.66'), {
      code: 'KPNG_PORTAL_FAILED',
      message:
        /^adding 10\.96\.0\.66 on .* netsh says "The parameter is incorrect\."; .*administrator/,
    });
    t.same([...(await subject.open()).ours], others);
  }
  t.same(netsh.addresses(NIC), ['10.96.0.1/32', '10.96.0.3/32', '172.16.0.1/20']);
});

t.test('W2: any other failure is an error', async (t) => {
  const { netsh, subject } = await opened(t);
  const stdout = '\r\nThe requested operation requires elevation (Run as administrator).\r\n';
  for (const [reaction, code, message] of [
    [{ fails: 'missing' }, 'KPNG_PORTAL_TOOL_MISSING', /no netsh on the PATH/],
    [{ fails: 'exit', stdout }, 'KPNG_PORTAL_PERMISSION', /requires elevation.*LocalSystem/],
  ] as const) {
    netsh.broken = reaction;
    await t.rejects(subject.change('add', ['10.96.0.1']), { code, message }, code);
  }
  netsh.broken = undefined;
  netsh.interfaces.delete(NIC);
  const { refused } = await subject.change('add', ['10.96.0.1']);
  t.match(refused.get('10.96.0.1'), {
    code: 'KPNG_PORTAL_FAILED',
    message: /adding 10\.96\.0\.1 on the interface "vEthernet \(HNS.*": netsh says/,
  });
});

t.test('several changes are one script', async (t) => {
  const { netsh, subject } = await opened(t);
  await subject.change('add', ['10.96.0.1', '10.96.0.2', 'fd00::1']);
  await subject.change('delete', ['10.96.0.1', 'fd00::1']);
  await subject.change('add', ['10.96.0.3', '10.96.0.4']);
  t.same(netsh.addresses(NIC), ['10.96.0.2/32', '10.96.0.3/32', '10.96.0.4/32', '172.16.0.1/20']);
  t.same(
    netsh.scripts.map(({ length }) => length),
    [3, 2, 2],
  );
  t.same(netsh.scripts[1], [
    `interface ipv4 delete address name="${NIC}" address=10.96.0.1 store=active`,
    `interface ipv6 delete address interface="${NIC}" address=fd00::1 store=active`,
  ]);
});

t.test('a reason common to all addresses is looked up only once', async (t) => {
  const { netsh, subject } = await opened(t);
  const many = Array.from({ length: 300 }, (_, n) => `10.96.${n >> 8}.${n & 255}`);
  for (const address of many) netsh.refused.add(address);
  const { refused } = await subject.change('add', many);
  t.equal(refused.size, 300);
  for (const { code } of refused.values()) t.equal(code, 'KPNG_PORTAL_FAILED');
  t.ok(netsh.commands.length < 20, `${netsh.commands.length} programs`);
});

t.test('waits until an address can be used, within a limit', async (t) => {
  const { netsh, subject } = await opened(t);
  netsh.tentative.set('10.96.0.1', 5);
  netsh.tentative.set('10.96.0.2', Infinity);
  const { refused } = await subject.change('add', ['10.96.0.1', '10.96.0.2']);
  t.match(refused.get('10.96.0.2'), {
    code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
    message: /could not be used in time/,
  });
  t.same([...refused.keys()], ['10.96.0.2']);
  t.same(netsh.addresses(NIC), ['10.96.0.1/32', '172.16.0.1/20'], 'the useless one is taken away');
});

t.test('a name that a script cannot express is passed as arguments', async (t) => {
  const { netsh, subject } = await opened(t, 'Anschluß “1”');
  await subject.change('add', ['10.96.0.1', '10.96.0.2']);
  t.same(netsh.scripts, []);
  t.same(netsh.addresses('Anschluß “1”'), ['10.96.0.1/32', '10.96.0.2/32']);
});

t.test('finds what a killed process has left, and nothing else is ours', async (t) => {
  const { netsh, process, subject } = await opened(t);
  await subject.change('add', ['10.96.0.1', '10.96.0.2', 'fd00::1']);
  netsh.on(NIC).push({ address: '10.96.0.3', prefix: 32, skipAsSource: true });
  netsh.on(NIC).splice(
    netsh.on(NIC).findIndex(({ address }) => address === '10.96.0.2'),
    1,
  );

  const next = process();
  const { ours, others } = await next.open();
  t.same([...ours], ['10.96.0.1', 'fd00::1']);
  t.same(
    others.map(({ address }) => address),
    ['127.0.0.1', '172.16.0.1', '10.96.0.3', '192.0.2.5'],
  );
  await next.change('delete', ['10.96.0.1', '10.96.0.3']);
  t.same(netsh.addresses(NIC), ['10.96.0.3/32', '172.16.0.1/20', 'fd00::1/128'], 'ours only');
  await next.dispose();
  t.same(netsh.addresses(NIC), ['10.96.0.3/32', '172.16.0.1/20']);
  await next.dispose();
  await next.change('add', ['10.96.0.4', '10.96.0.5', '10.96.0.6']);
  netsh.interfaces.set(NIC, []);
  for (const missing of [['10.96.0.4'], ['10.96.0.5', '10.96.0.6']]) {
    t.same(
      (await next.change('delete', missing)).refused,
      new Map(),
      'removing a missing one succeeds',
    );
  }
});

t.test('an address of an interface that was down is still ours', async (t) => {
  const { netsh, process, subject } = await opened(t);
  await subject.change('add', ['10.96.0.1']);
  netsh.tentative.set('10.96.0.1', Infinity);
  const next = process();
  t.same([...(await next.open()).ours], []);
  t.equal((await next.change('add', ['10.96.0.1'])).refused.size, 1);
  netsh.tentative.clear();
  t.same([...(await next.open()).ours], ['10.96.0.1']);
});

t.test('records from before the last boot are ignored', async (t) => {
  const { netsh, process, subject } = await opened(t);
  await subject.change('add', ['10.96.0.1']);
  t.same([...(await process(BOOTED + 60_000).open()).ours], ['10.96.0.1'], 'a clock that was set');
  t.same([...(await process(BOOTED + 86_400_000).open()).ours], []);
  t.ok(netsh.addresses(NIC).includes('10.96.0.1/32'));
});

t.test('a ledger that was cut off, or holds nonsense, is read as far as it goes', async (t) => {
  const { netsh, path, process, subject } = await opened(t);
  await subject.change('add', ['10.96.0.1', '10.96.0.2', '10.96.0.3']);
  await subject.change('delete', ['10.96.0.3']);
  netsh.on(NIC).push({ address: '10.96.0.3', prefix: 32, skipAsSource: true });
  await appendFile(path, 'nonsense\n10.96.0');
  const { ours } = await process().open();
  t.same([...ours], ['10.96.0.1', '10.96.0.2'], 'what was removed is not ours when it returns');
});

t.test('without its ledger it could not recognize its own addresses', async (t) => {
  const { path, process } = await opened(t);
  await t.rejects(process(BOOTED, join(path, '..')).open(), {
    code: 'KPNG_PORTAL_FAILED',
    message: /the record of addresses and rules that this program added/,
  });
});

t.test('returns the addresses that have connections', async (t) => {
  const { netsh, subject } = await opened(t);
  netsh.connections.add('10.96.0.1').add('fd00::1').add('10.96.0.9');
  const used = await subject.inUse(['10.96.0.1', '10.96.0.2', 'fd00::1']);
  t.same([...used], ['10.96.0.1', '10.96.0.9', 'fd00::1']);
  t.same(netsh.lines, ['netstat -n -p TCP', 'netstat -n -p TCPv6']);
  netsh.broken = { fails: 'missing' };
  t.same([...(await subject.inUse(['10.96.0.1']))], [], 'without netstat it cannot be known');
});
