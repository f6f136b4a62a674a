import t from 'tap';
import type { Exec } from '../../../src/portal/exec.ts';
import { nftablesBackend } from '../../../src/portal/nftables/backend.ts';
import { PortAllocator } from '../../../src/portal/proxy-ports.ts';
import { canaryAddress } from '../../../src/portal/rules/canary.ts';
import type { Elements } from '../../../src/portal/rules/backend.ts';
import { RulePortal } from '../../../src/portal/rules/rule-portal.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { elementsOf, wants } from '../../support/portals.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { FakeNft } from '../../support/fake-nft.ts';
import { CONFIG, CONTENT, NODE } from '../../support/rule-rigs.ts';

const ROUTE = { mark: 0x40, table: 10_040, priority: 40 };
const TABLE = 'kpng-userspace';
const COMMAND = { file: 'nft', args: ['-f', '-'] };

function services(addresses: readonly string[], value = '40001'): Elements {
  return elementsOf(
    ...addresses.map((each) => ({ set: 'services4', key: `${each} . tcp . 80`, value })),
  );
}

/** What a first write gives a kernel. */
async function written(elements: Elements, config = CONFIG) {
  const nft = new FakeNft();
  const backend = nftablesBackend(nft.exec, TABLE);
  await backend.replace(config, elements, false);
  return { nft, backend, before: structuredClone(nft.tables) };
}

t.test('checking whether the kernel accepts items changes nothing', async (t) => {
  const { nft, backend, before } = await written(services(['10.0.0.1']));
  nft.refuses = (element) => element.startsWith('10.0.0.66');
  t.equal(await backend.accepts(CONFIG, services(['10.0.0.2'])), true);
  t.equal(await backend.accepts(CONFIG, services(['10.0.0.2', '10.0.0.66'])), false);
  t.strictSame(nft.tables, before);
  nft.broken = exits('Operation not permitted (you must be root)\n');
  await t.rejects(backend.accepts(CONFIG, services([])), { code: 'KPNG_PORTAL_PERMISSION' });
});

t.test('a process that takes the table over changes only what differs', async (t) => {
  for (const more of [{}, { route: ROUTE }]) {
    const isOther = 'route' in more;
    const { nft, backend } = await written(services(['10.0.0.1', '10.0.0.2']));
    const config = { ...CONFIG, owner: 'abcdef012345', ...more };
    const elements = services(['10.0.0.2', '10.0.0.3'], isOther ? '' : '40001');
    t.equal(await backend.replace(config, elements, true), CONFIG.owner, 'not its own');
    await backend.replace(config, elements, false);
    t.notMatch(nft.scripts.at(-1), /0\.0\.0\.0\/0|delete table/, 'what stays is left alone');
    if (!isOther) t.notMatch(nft.scripts.at(-1), '10.0.0.2');
    t.same(nft.tables, (await written(elements, config)).before);
    t.equal(await backend.comparisons[0]?.difference(config, elements), undefined);
  }
});

t.test('a table that cannot be changed is replaced', async (t) => {
  const nft = new FakeNft();
  const hook = 'type nat hook prerouting priority 0; policy accept;';
  const stdin = `table inet ${TABLE} {\n\tchain nat-prerouting {\n${hook}\n}\n}\n`;
  await nft.exec({ ...COMMAND, stdin });
  const elements = services(['10.0.0.1']);
  const backend = nftablesBackend(nft.exec, TABLE);
  await backend.replace(CONFIG, elements, false);
  t.match(nft.scripts.at(-1), `delete table inet ${TABLE}`);
  t.equal(await backend.comparisons[0]?.difference(CONFIG, elements), undefined);
});

t.test('routes that were begun before the rules', async (t) => {
  const nft = new FakeNft();
  let problem = 'RTNETLINK answers: Device or resource busy\n';
  let adding = Promise.resolve();
  let isThere = false;
  const ip = new FakeExec(async ({ args, stdin = '' }) => {
    if (problem !== '') return exits(problem);
    if (args.includes('-j')) {
      const route = { type: 'local', dst: 'default', dev: 'lo', protocol: '78' };
      return { stdout: `[]\n${JSON.stringify(isThere ? [route] : [])}\n` };
    }
    if (stdin.includes(' add ')) await adding;
    isThere = stdin.includes(' add ');
    return {};
  });
  const exec: Exec = (command) => (command.file === 'ip' ? ip : nft).exec(command);
  const backend = nftablesBackend(exec, TABLE, { route: ROUTE, socket: async () => -1 });
  const config = { ...CONFIG, families: [4], route: ROUTE } as const;
  backend.prepare?.(config);
  await new Promise(setImmediate);
  problem = '';
  backend.prepare?.(config);
  await backend.replace(config, services([]), false);
  t.ok(isThere, 'the next attempt does not fail for the reason of the one before');
  isThere = false;
  const gate = Promise.withResolvers<void>();
  adding = gate.promise;
  backend.prepare?.(config);
  await new Promise(setImmediate);
  const removed = backend.remove(config);
  await new Promise(setImmediate);
  gate.resolve();
  await removed;
  await new Promise(setImmediate);
  t.notOk(isThere, 'and are removed once they have been added');
});

t.test('only the rules reach the canary’s port', async (t) => {
  for (const families of [[4, 6], [6]] as const) {
    const family = families[0];
    const backend = nftablesBackend(new FakeNft().exec);
    const canary = backend.canary({ ...CONFIG, families });
    t.teardown(() => canary.close());
    const elements = await canary.open();
    const { host: address, port } = canaryAddress(CONFIG.owner, family);
    const proxyPort = elements.find(({ set }) => set === `services${family}`)?.value;
    t.strictSame(elements, [
      { set: `services${family}`, key: `${address} . tcp . ${port}`, value: proxyPort },
      { set: `proxy-ports${family}`, key: `tcp . ${proxyPort}`, value: '' },
    ]);
  }
});

t.test('transparent delivers TCP to the socket that all service ports share', async (t) => {
  const fake = new FakeExec(({ file }) => (file === 'ip' ? { stdout: '[]\n[]\n' } : {}));
  const { exec } = fake;
  const allocator = new PortAllocator(undefined, Math.random);
  const given = { allocator, exec, clock: new FakeClock(), interfaces: () => NODE };
  const transparent = { route: ROUTE, socket: () => Promise.reject(new Error('not here')) };
  const backend = nftablesBackend(exec, TABLE, transparent);
  const portal = new RulePortal({ ...given, canary: () => CONTENT }, backend);
  const idle = {
    ...wants('d/idle', 'clusterIP 10.0.0.2:80'),
    served: { internal: false, external: false },
  };
  const plan = portal.plan(
    [wants('d/a', 'clusterIP 10.0.0.1:80'), idle, wants('d/dns', 'clusterIP 10.0.0.3:53/UDP')],
    [],
  );
  const bound = [...plan].map(
    ([name, all]) =>
      [name, all.map((listen) => ({ listen, boundPort: listen.port || 40_001 }))] as const,
  );
  await portal.commit(bound);
  await portal.close();
  const script = fake.commands
    .map(({ stdin = '' }) => stdin)
    .find((text) => text.includes('listeners4'));
  t.match(script, /element inet kpng-userspace listeners4 \{\ntcp : 40001\n\}/);
});
