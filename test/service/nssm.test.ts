import t from 'tap';
import { createNssm, installCommands } from '../../src/service/nssm.ts';
import type { Clock } from '../../src/util/clock.ts';
import { FakeNssm, SERVICE as SPEC } from '../support/fake-nssm.ts';

/** Waits take no time, and are counted. */
class HastyClock implements Clock {
  passed = 0;
  now(): number {
    return this.passed;
  }
  setTimer(ms: number, callback: () => void) {
    this.passed += ms;
    setImmediate(callback);
    return { cancel: () => {} };
  }
}

function rig() {
  const fake = new FakeNssm();
  const clock = new HastyClock();
  return { fake, clock, nssm: createNssm({ program: 'nssm', exec: fake.exec, clock }) };
}

t.test('what NSSM is given, word for word', async (t) => {
  const log = String.raw`C:\ProgramData\kpng-userspace\logs\winuserspace.log`;
  const parameters = String.raw`-v=4 --tls-ca "C:\Program Files\kpng\ca.pem"`;
  const rest = [
    ['set', 'winuserspace', 'AppParameters', parameters],
    ['set', 'winuserspace', 'AppDirectory', String.raw`C:\Program Files\kpng`],
    ['set', 'winuserspace', 'DisplayName', 'Kubernetes proxy'],
    ['set', 'winuserspace', 'Description', 'Proxies & balances'],
    ['set', 'winuserspace', 'Start', 'SERVICE_DELAYED_AUTO_START'],
    ['set', 'winuserspace', 'AppStdout', log],
    ['set', 'winuserspace', 'AppStderr', log],
    ['set', 'winuserspace', 'AppRotateFiles', '1'],
    ['set', 'winuserspace', 'AppRotateOnline', '1'],
    ['set', 'winuserspace', 'AppRotateBytes', '1048576'],
    ['set', 'winuserspace', 'AppEnvironmentExtra', ...SPEC.environment],
    ['set', 'winuserspace', 'DependOnService', 'kpng'],
    ['set', 'winuserspace', 'AppStopMethodSkip', '6'],
    ['set', 'winuserspace', 'AppStopMethodConsole', '15000'],
    ['set', 'winuserspace', 'AppRestartDelay', '2000'],
    ['set', 'winuserspace', 'AppExit', 'Default', 'Restart'],
    ['set', 'winuserspace', 'AppExit', '0', 'Exit'],
    ['set', 'winuserspace', 'AppExit', '2', 'Exit'],
  ];
  t.same(installCommands(SPEC, false), [['install', 'winuserspace', SPEC.program], ...rest]);
  t.same(installCommands(SPEC, true), [
    ['set', 'winuserspace', 'Application', SPEC.program],
    ...rest,
  ]);
});

t.test('settings that are no longer needed are reset', async (t) => {
  const { fake, nssm } = rig();
  t.equal(await nssm.install(SPEC), false);
  const settings = fake.services.get('winuserspace')?.settings;
  t.same(settings?.get('DependOnService'), ['kpng']);
  t.equal(await nssm.install({ ...SPEC, dependsOn: [], environment: [] }), true, 'was there');
  t.notOk(settings?.has('DependOnService'));
  t.notOk(settings?.has('AppEnvironmentExtra'));
  t.equal(fake.lines.filter((line) => line.startsWith('nssm install')).length, 1);
});

t.test('start and stop end when Windows reports it, whatever NSSM prints', async (t) => {
  const { fake, nssm } = rig();
  await nssm.install(SPEC);
  await nssm.start(SPEC.name);
  t.equal(await nssm.status(SPEC.name), 'running');
  await nssm.start(SPEC.name);
  fake.givesUp = true;
  fake.stops = Array.from({ length: 40 }, () => 'SERVICE_STOP_PENDING').concat('SERVICE_STOPPED');
  await nssm.stop(SPEC.name);
  t.equal(await nssm.status(SPEC.name), 'stopped');
  await nssm.stop(SPEC.name);
  t.same(
    fake.lines.filter((line) => / (?:start|stop) /.test(line)),
    ['nssm start winuserspace', 'nssm stop winuserspace'],
  );
});

t.test('waits for a stop as long as the program may drain', async (t) => {
  const { fake, nssm, clock } = rig();
  await nssm.install({ ...SPEC, stopTimeoutMs: 60_000 });
  await nssm.start(SPEC.name);
  fake.stops = ['SERVICE_STOP_PENDING'];
  const before = clock.passed;
  await t.rejects(nssm.stop(SPEC.name), { message: /has not stopped, it is changing/ });
  t.ok(clock.passed - before >= 60_000 && clock.passed - before < 120_000);
});

t.test('a program that ends at once is reported, with what NSSM says', async (t) => {
  const { fake, nssm, clock } = rig();
  await nssm.install(SPEC);
  fake.starts = ['SERVICE_START_PENDING', 'SERVICE_PAUSED'];
  await t.rejects(nssm.start(SPEC.name), { message: /does not run, it is pausing; see its log/ });
  t.ok(clock.passed < 5000, 'without waiting to the end');
  await nssm.stop(SPEC.name);
  fake.givesUp = true;
  await t.rejects(nssm.start(SPEC.name), {
    message: /NSSM says "Unexpected status SERVICE_PAUSED"; .*it is pausing; see its log/,
  });
});

t.test('without NSSM, reports where to get it', async (t) => {
  const { fake, clock } = rig();
  const nssm = createNssm({ program: 'other', exec: fake.exec, clock });
  await t.rejects(nssm.status('x'), { message: /there is no other; get NSSM.*--nssm.*--winsw/ });
});
