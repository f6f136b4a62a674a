import t from 'tap';
import { parse } from '../../src/cli/parse.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/to-userspace.ts';
import { createPortal } from '../../src/cli/sinks/userspace-portal.ts';
import { captureLog } from '../support/captured-log.ts';
import { exits } from '../support/fake-exec.ts';
import { FakeNft } from '../support/fake-nft.ts';

/** Makes the portal of a command line, on an nft that is made up. */
async function make(flags: string, nft = new FakeNft()) {
  const { log, lines } = await captureLog();
  const invocation = parse(`local to-userspace ${flags}`.split(' ').filter((word) => word !== ''));
  if (invocation.kind !== 'run') throw new Error(invocation.kind);
  const portal = await createPortal(invocation.sink.options as UserspaceOptions, log, nft.exec);
  return { portal, lines: lines(), nft };
}

t.test('a portal that was named is taken, and nothing is tried before', async (t) => {
  for (const kind of ['nftables', 'address', 'none']) {
    const { portal, lines, nft } = await make(`--portal ${kind}`);
    t.equal(portal.kind, kind);
    t.same(lines, []);
    t.same(nft.commands, []);
  }
});

t.test('auto takes nftables where it works, changes nothing, and says so', async (t) => {
  const { portal, lines, nft } = await make('');
  t.equal(portal.kind, 'nftables');
  t.match(lines, [{ level: 'info', msg: 'Chose --portal nftables', reason: /may write them/ }]);
  t.same([...nft.tables.keys()], []);
  t.same(
    nft.commands.map(({ file, args }) => [file, ...args].join(' ')),
    ['nft -c -f -'],
  );
});

t.test('auto takes address where nftables does not work, and says why', async (t) => {
  const cases = [
    [{ fails: 'missing' }, 'KPNG_PORTAL_TOOL_MISSING', /no nft on the PATH/],
    [exits('Error: Operation not permitted\n'), 'KPNG_PORTAL_PERMISSION', /CAP_NET_ADMIN/],
    [exits('Error: syntax error\n'), 'KPNG_PORTAL_UNSUPPORTED', /0\.9\.7/],
    [{ fails: 'timeout' }, 'KPNG_PORTAL_FAILED', /killed after/],
  ] as const;
  for (const [reaction, code, reason] of cases) {
    const nft = new FakeNft();
    nft.broken = reaction;
    const { portal, lines } = await make('--portal auto', nft);
    t.equal(portal.kind, 'address', code);
    t.match(lines, [{ level: 'info', msg: 'Chose --portal address', code, reason }]);
  }
});

t.test('a loopback address cannot be led to: auto takes address, nftables refuses', async (t) => {
  const { portal, lines } = await make('--bind-address 127.0.0.1');
  t.equal(portal.kind, 'address');
  t.match(lines, [{ code: 'KPNG_USAGE', reason: /loopback/ }]);
  await t.rejects(make('--portal nftables --bind-address 127.0.0.1'), { code: 'KPNG_USAGE' });
});

t.test('the table has the name that was given, and goes only with --cleanup-on-exit', async (t) => {
  for (const [flag, left] of [
    ['', ['mine']],
    ['--cleanup-on-exit', []],
  ] as const) {
    const { portal, nft } = await make(`--portal nftables --portal-table mine ${flag}`);
    await portal.commit(new Map());
    t.same([...nft.tables.keys()], ['mine']);
    await portal.close();
    t.same([...nft.tables.keys()], left, flag);
    await portal.close();
  }
});

t.test('--cleanup-on-exit leaves a table that another process has taken', async (t) => {
  const nft = new FakeNft();
  const first = await make('--portal nftables --cleanup-on-exit', nft);
  const second = await make('--portal nftables --cleanup-on-exit', nft);
  await first.portal.commit(new Map());
  await second.portal.commit(new Map());
  await first.portal.close();
  t.same([...nft.tables.keys()], ['kpng-userspace']);
  await second.portal.close();
  t.same([...nft.tables.keys()], []);
});

t.test('--cleanup-on-exit tells when the table cannot be removed', async (t) => {
  const { portal, nft } = await make('--portal nftables --cleanup-on-exit');
  await portal.commit(new Map());
  nft.broken = exits('Error: Operation not permitted\n');
  await t.rejects(portal.close(), { code: 'KPNG_PORTAL_PERMISSION', message: /removing/ });
});
