import t from 'tap';
import { nftablesCanary } from '../../../src/portal/nftables/portal.ts';
import type { SetName } from '../../../src/portal/nftables/table.ts';
import { NftablesBackend } from '../../../src/portal/nftables/backend.ts';
import { canaryAddress } from '../../../src/portal/rules/canary.ts';
import { ItemMap, type RuleConfig } from '../../../src/portal/rules/items.ts';
import { exits } from '../../support/fake-exec.ts';
import { FakeNft } from '../../support/fake-nft.ts';

const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.0.2.5', 6: '2001:db8::5' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['::/0'] },
};

function ledgerWith(...addresses: string[]): ItemMap<SetName> {
  const ledger = new ItemMap<SetName>();
  const elements = addresses.map((address) => {
    return { set: 'services4' as const, key: `${address} . tcp . 80`, value: '40001' };
  });
  ledger.update([], elements);
  return ledger;
}

t.test('asking whether the kernel would take something changes nothing', async (t) => {
  const nft = new FakeNft();
  const store = new NftablesBackend(nft.exec, 'kpng-userspace');
  await store.replace(CONFIG, ledgerWith('10.0.0.1'), false);
  const before = structuredClone(nft.tables);
  nft.refuses = (element) => element.startsWith('10.0.0.66');
  t.equal(await store.wouldTake(CONFIG, ledgerWith('10.0.0.2')), true);
  t.equal(await store.wouldTake(CONFIG, ledgerWith('10.0.0.2', '10.0.0.66')), false);
  t.strictSame(nft.tables, before);
  nft.broken = exits('Operation not permitted (you must be root)\n');
  await t.rejects(store.wouldTake(CONFIG, ledgerWith()), { code: 'KPNG_PORTAL_PERMISSION' });
});

t.test('what nothing has to be written for runs no program', async (t) => {
  const nft = new FakeNft();
  const store = new NftablesBackend(nft.exec, 'kpng-userspace');
  const flow = { set: 'flows4', key: '10.0.0.1 53', before: '1', after: '2' } as const;
  await store.change(CONFIG, [flow]);
  t.same(nft.commands, []);
});

t.test('nobody but the rules leads to the canary’s port', async (t) => {
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
