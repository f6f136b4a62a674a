import t from 'tap';
import { parse } from '../../src/cli/parse.ts';
import { createKeeper } from '../../src/cli/sinks/portal-interface.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/to-userspace.ts';
import { createPortal } from '../../src/cli/sinks/userspace-portal.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeIp } from '../support/fake-ip.ts';
import { wants } from '../support/portals.ts';

const LINUX = process.platform === 'linux' ? false : 'only on linux';

function optionsOf(flags: string): UserspaceOptions {
  const invocation = parse(`local to-userspace ${flags}`.split(' '));
  if (invocation.kind !== 'run') throw new Error(invocation.kind);
  return invocation.sink.options as UserspaceOptions;
}

t.test('an interface asks for the portal that uses one', async (t) => {
  t.equal(optionsOf('--portal-interface kpng0').portal, 'address');
  t.equal(optionsOf('--portal address --portal-interface kpng0').portal, 'address');
  for (const portal of ['nftables', 'none']) {
    const line = `local to-userspace --portal ${portal} --portal-interface kpng0`.split(' ');
    t.match(parse(line), { kind: 'usage-error', error: { code: 'KPNG_USAGE' } }, portal);
  }
});

t.test('without a name nothing is added to the host', async (t) => {
  t.equal(await createKeeper({ portalInterface: '', cleanupOnExit: false }), undefined);
});

t.test('names that cannot be, and systems that cannot, are refused', async (t) => {
  const options = { portalInterface: 'kpng0', cleanupOnExit: false };
  await t.rejects(createKeeper(options, undefined, 'darwin'), {
    code: 'KPNG_USAGE',
    message: /works on Linux only/,
  });
  await t.rejects(createKeeper({ ...options, portalInterface: 'a b' }, undefined, 'linux'), {
    code: 'KPNG_USAGE',
    message: /cannot be the name of a network interface/,
  });
});

t.test('--cleanup-on-exit removes what was added', { skip: LINUX }, async (t) => {
  for (const [flag, left] of [
    ['--cleanup-on-exit=false', true],
    ['--cleanup-on-exit', false],
  ] as const) {
    const { log } = await captureLog();
    const ip = new FakeIp();
    const options = optionsOf(`--portal-interface kpng0 ${flag}`);
    const portal = await createPortal(options, log, ip.exec);
    portal.plan([wants('d/a', 'clusterIP 10.0.0.1:80')], []);
    await portal.prepare?.();
    await portal.commit(new Map());
    t.same(ip.addresses('kpng0'), ['10.0.0.1/32']);
    await portal.close();
    t.equal(ip.links.has('kpng0'), left, flag);
  }
});
