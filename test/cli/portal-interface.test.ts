import t from 'tap';
import { createKeeper, createPortal } from '../../src/cli/sinks/userspace-portal.ts';
import { captureLog } from '../support/captured-log.ts';
import { userspaceOptions } from '../support/command-lines.ts';
import { FakeIp } from '../support/fake-ip.ts';
import { FakeNetsh } from '../support/fake-netsh.ts';
import { wants } from '../support/portals.ts';

const LINUX = process.platform === 'linux' ? false : 'only on linux';

async function keeperOf(portalInterface: string | undefined, platform: NodeJS.Platform) {
  const { log } = await captureLog();
  const options = { portalInterface, cleanupOnExit: false };
  return createKeeper(options, log, undefined, { platform, env: {} });
}

t.test('without a name nothing is added to the host', async (t) => {
  for (const platform of ['linux', 'darwin'] as const) {
    t.equal(await keeperOf(undefined, platform), undefined, platform);
  }
  t.equal(await keeperOf('', 'win32'), undefined);
});

t.test('invalid names and unsupported systems are refused', async (t) => {
  for (const [name, platform, message] of [
    ['kpng0', 'darwin', /works on Linux and Windows only/],
    ['a b', 'linux', /cannot be the name of a network interface/],
    ['a"b', 'win32', /cannot be the name/],
  ] as const) {
    await t.rejects(keeperOf(name, platform), { code: 'KPNG_USAGE', message });
  }
});

t.test('on Windows an interface is always chosen, and the log says which and why', async (t) => {
  for (const [portalInterface, env, expected] of [
    [
      'Ethernet 2',
      { INTERFACE_TO_ADD_SERVICE_IP: 'eth0' },
      /^Ethernet 2 --portal-interface names it/,
    ],
    [
      undefined,
      { INTERFACE_TO_ADD_SERVICE_IP: 'eth0' },
      /^eth0 INTERFACE_TO_ADD_SERVICE_IP names it/,
    ],
    [undefined, {}, /./],
  ] as const) {
    const { log, lines } = await captureLog();
    const options = { portalInterface, cleanupOnExit: false };
    const keeper = await createKeeper(options, log, undefined, { platform: 'win32', env });
    t.ok(keeper);
    await keeper?.close();
    const [line] = lines();
    t.match([line?.['interface'], line?.['reason']].join(' '), expected);
  }
});

t.test('--cleanup-on-exit removes what was added', { skip: LINUX }, async (t) => {
  for (const [flag, left] of [
    ['--cleanup-on-exit=false', true],
    ['--cleanup-on-exit', false],
  ] as const) {
    const { log } = await captureLog();
    const ip = new FakeIp();
    const options = userspaceOptions(`--portal-interface kpng0 ${flag}`);
    const portal = await createPortal(options, log, { exec: ip.exec });
    portal.plan([wants('d/a', 'clusterIP 10.0.0.1:80')], []);
    await portal.prepare?.();
    await portal.commit(new Map());
    t.same(ip.addresses('kpng0'), ['10.0.0.1/32']);
    await portal.close();
    t.equal(ip.links.has('kpng0'), left, flag);
  }
});

t.test('--portal portproxy is for Windows, and says what it does not redirect', async (t) => {
  const options = userspaceOptions(
    '--portal portproxy --portal-interface Ethernet',
    'to-winuserspace',
  );
  t.match(options, { portal: 'portproxy', portalInterface: 'Ethernet' });
  const { log, messages } = await captureLog();
  const netsh = new FakeNetsh();
  const make = (platform: NodeJS.Platform) =>
    createPortal(options, log, { exec: netsh.exec, system: { platform, env: {} } });
  await t.rejects(make('linux'), { code: 'KPNG_USAGE', message: /for Windows only/ });
  const portal = await make('win32');
  t.equal(portal.kind, 'portproxy');
  t.match(messages().at(-1), /portproxy redirects TCP; UDP listens/);
  t.same(netsh.commands, [], 'nothing is run before the first sync');
  await portal.close();
});
