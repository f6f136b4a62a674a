import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { readFlags, splitLine } from '../../../src/cli/flags/read.ts';
import { pickValues } from '../../../src/cli/flags/table.ts';
import { parse } from '../../../src/cli/parse.ts';
import { runService, findNssm, ownProgram } from '../../../src/cli/service/command.ts';
import { SERVICE_FLAGS, VERBS } from '../../../src/cli/service/flags.ts';
import { FakeNssm } from '../../support/fake-nssm.ts';

const OWN = { program: String.raw`C:\k p\kpng.exe`, args: [], directory: String.raw`C:\k p` };

/** A Windows with NSSM and a folder for data of programs. */
async function windows(t: { teardown(end: () => Promise<void>): unknown }) {
  const data = await mkdtemp(join(tmpdir(), 'kpng-service-'));
  t.teardown(() => rm(data, { recursive: true }));
  const fake = new FakeNssm();
  const service = async (line: string, platform: NodeJS.Platform = 'win32') => {
    const stdout = new PassThrough();
    const host = { stdout, env: { ProgramData: data }, platform, exec: fake.exec, own: OWN };
    const { words, rest, flags } = splitLine(line.split(' '), SERVICE_FLAGS);
    const verb = VERBS.find((each) => each === words[0]) ?? 'status';
    const values = pickValues(SERVICE_FLAGS, readFlags(flags, SERVICE_FLAGS));
    try {
      const code = await runService(verb, values, rest, host);
      return { code, stdout: await text(stdout.end()) };
    } catch (error) {
      return { error };
    }
  };
  return { fake, data, service };
}

t.test('the life of a service', async (t) => {
  const { fake, data, service } = await windows(t);
  const install =
    'install --name winuserspace --depends-on kpng --env A=b,c --env D=e -- local to-winuserspace -v=4';
  t.match(await service(install), { code: 0, stdout: /winuserspace is installed and stopped\.\n/ });
  const settings = fake.services.get('winuserspace')?.settings;
  t.same(settings?.get('AppParameters'), ['local to-winuserspace -v=4']);
  t.same(settings?.get('AppEnvironmentExtra'), ['A=b,c', 'D=e']);
  t.ok((await stat(join(data, 'kpng-userspace', 'logs'))).isDirectory());
  t.match(await service('status --name winuserspace'), { code: 1, stdout: 'stopped\n' });
  t.match(await service('start --name winuserspace'), { code: 0, stdout: /is running/ });
  t.match(await service('status --name winuserspace'), { code: 0, stdout: 'running\n' });
  t.match(await service(install), {
    code: 0,
    stdout: /is changed and running; changes take effect/,
  });
  t.match(await service('stop --name winuserspace'), { code: 0, stdout: /has stopped/ });
  await service('start --name winuserspace');
  t.match(await service('uninstall --name winuserspace'), { code: 0, stdout: /is removed/ });
  const stop = 'nssm stop winuserspace';
  const ended = fake.lines.filter((line) => / (?:stop|remove) /.test(line));
  t.same(ended, [stop, stop, 'nssm remove winuserspace confirm'], 'stopped before it is removed');
  t.match(await service('uninstall --name winuserspace'), {
    code: 0,
    stdout: /There is no service/,
  });
  t.match(await service('status --name winuserspace'), { code: 1, stdout: 'absent\n' });
  for (const verb of ['start', 'stop']) {
    t.match(await service(`${verb} --name winuserspace`), {
      error: { code: 'KPNG_WRAPPER_FAILED', message: 'there is no service winuserspace' },
    });
  }
});

t.test('a command line that could not run is not installed', async (t) => {
  const { service } = await windows(t);
  const cases: [string, RegExp][] = [
    ['', /expected one of install, uninstall, start, stop, status/],
    ['restart', /expected one of/],
    ['install', /write the command line of the service after "--"/],
    ['install kube to-api', /write "--" before/],
    ['install -- kube to-bogus', /unknown backend/],
    ['install -- version', /names no source and backend/],
    ['install --name a/b -- kube to-api', /--name.*letters, digits/],
    ['install --env nonsense -- kube to-api', /--env.*NAME=value/],
    ['start -- kube to-api', /takes no command line/],
    ['status --winsw x', /--winsw is for service install/],
    ['status --bogus', /unknown flag/],
  ];
  for (const [line, message] of cases) {
    const words = line.split(' ').filter((word) => word !== '');
    t.match(parse(['service', ...words]), { kind: 'usage-error', error: { message } }, line);
  }
  t.equal(parse(['service', 'install', '--', 'kube', 'to-api', '-v=2']).kind, 'other');
  t.match(await service('status', 'linux'), { error: { message: /for Windows/ } });
});

t.test('a definition for WinSW is written anywhere', async (t) => {
  const { data, fake, service } = await windows(t);
  const folder = join(data, 'sw');
  const { code, stdout } = await service(`install --winsw ${folder} -- kube to-api`, 'linux');
  t.equal(code, 0);
  t.match(stdout, /kpng-userspace\.xml\. Copy WinSW to .*kpng-userspace\.exe/);
  const xml = await readFile(join(folder, 'kpng-userspace.xml'), 'utf8');
  t.match(xml, '<arguments>kube to-api</arguments>');
  t.match(xml, String.raw`<executable>C:\k p\kpng.exe</executable>`);
  t.same(fake.commands, []);
});

t.test('a service starts the same program again', async (t) => {
  t.same(ownProgram('/k/kpng.exe', '/k/kpng.exe', true), {
    program: '/k/kpng.exe',
    args: [],
    directory: '/k',
  });
  t.same(ownProgram('/n/node', '/k/bin/kpng.js', false), {
    program: '/n/node',
    args: ['--disable-sigusr1', '/k/bin/kpng.js'],
    directory: '/n',
  });
  t.equal(
    findNssm('/k', (path) => path === join('/k', 'nssm.exe')),
    join('/k', 'nssm.exe'),
  );
  t.equal(
    findNssm('/k', () => false),
    'nssm',
  );
});
