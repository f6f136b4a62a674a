import t from 'tap';
import { ExecError, type ExecFailure } from '../../../src/portal/exec.ts';
import {
  nftablesProblem,
  nftFailure,
  removeNftables,
} from '../../../src/portal/nftables/backend.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { FakeNft } from '../../support/fake-nft.ts';

const NFT = { file: 'nft', args: ['-f', '-'] };

function failing(failure: ExecFailure, stderr = ''): ExecError {
  return new ExecError(failure, NFT, { stderr, exitCode: 1 });
}

t.test('says what nft means, and what to do', (t) => {
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
    const found = nftFailure(failing('exit', stderr), 'changing the table');
    t.match(found, { blame, code, message }, stderr);
  }
  t.end();
});

t.test('removes the table, whether there is one or not', async (t) => {
  const nft = new FakeNft();
  await nft.exec({ ...NFT, stdin: 'table inet kpng-userspace {\n}\ntable inet other {\n}\n' });
  await removeNftables(nft.exec, 'kpng-userspace');
  t.strictSame([...nft.tables.keys()], ['other']);
  await removeNftables(nft.exec, 'kpng-userspace');
  t.strictSame([...nft.tables.keys()], ['other']);
  await t.rejects(removeNftables(nft.exec, 'x; flush ruleset'), { code: 'KPNG_USAGE' });
  nft.broken = { fails: 'missing' };
  await t.rejects(removeNftables(nft.exec, 'kpng-userspace'), { code: 'KPNG_PORTAL_TOOL_MISSING' });
});

t.test('says why nftables cannot be used, without changing anything', async (t) => {
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
