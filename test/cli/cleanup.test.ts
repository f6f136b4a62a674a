import { PassThrough } from 'node:stream';
import t from 'tap';
import { cleanup } from '../../src/cli/cleanup.ts';
import { exits } from '../support/fake-exec.ts';
import { FakeNft } from '../support/fake-nft.ts';
import { NftablesRig } from '../support/nftables-rig.ts';

async function clean(nft: FakeNft, table = 'kpng-userspace') {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const code = await cleanup({ table, stdout, stderr, exec: nft.exec });
  return { code, stdout: String(stdout.read() ?? ''), stderr: String(stderr.read() ?? '') };
}

t.test('removes the table that was named, and may be done twice', async (t) => {
  const rig = new NftablesRig({ table: 'other' });
  t.teardown(() => rig.portal.close());
  await rig.portal.commit(new Map());
  t.same([...rig.nft.tables.keys()], ['other']);
  await clean(rig.nft);
  t.same([...rig.nft.tables.keys()], ['other'], 'not that one');
  for (const time of ['first', 'second']) {
    const { code, stdout, stderr } = await clean(rig.nft, 'other');
    t.equal(code, 0, time);
    t.equal(stdout, 'There is no nftables table inet other any more.\n');
    t.equal(stderr, '');
  }
  t.same([...rig.nft.tables.keys()], []);
});

t.test('says why it cannot', async (t) => {
  const nft = new FakeNft();
  nft.broken = exits('Error: Operation not permitted\n');
  const { code, stdout, stderr } = await clean(nft);
  t.equal(code, 1);
  t.equal(stdout, '');
  t.match(
    stderr,
    /^kpng-userspace: removing the nftables table inet kpng-userspace: .*CAP_NET_ADMIN.* \(KPNG_PORTAL_PERMISSION\)\n$/,
  );
});
