/** Ways to end the program in a console, and the lines for NSSM of the page, as they are printed there. */
import { equal, match } from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Lab } from './life.ts';
import { state } from './services.ts';
import { becomes, drains, inside } from './support/peers.ts';
import type { Steps } from './support/wine.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const FOLDER = String.raw`C:\Program Files\kpng`;
const PORT = 8091;

export function kubeconfig(server: string): string {
  return `clusters: [{ name: c, cluster: { server: "${server}" } }]
contexts: [{ name: x, context: { cluster: c, user: u } }]
users: [{ name: u, user: {} }]
current-context: x
`;
}

/** Keys, the signal that Node makes of each, and flags that would make the drain too long. */
const ENDS = [
  { key: 'Ctrl-C', signal: 'SIGINT', flags: [] },
  { key: 'Ctrl-Break', signal: 'SIGBREAK', flags: [] },
  { key: 'close', signal: 'SIGHUP', flags: ['--drain-delay', '1h'] },
] as const;

export async function stops(steps: Steps, lab: Lab): Promise<void> {
  const { wine, namespace } = lab;
  await wine.put(FOLDER, ...lab.files);
  await writeFile(wine.hostPath(String.raw`${FOLDER}\state.yaml`), state(1, PORT));
  await writeFile(wine.hostPath(String.raw`${FOLDER}\config`), kubeconfig('http://127.0.0.1:1'));

  for (const { key, signal, flags } of ENDS) {
    const what = key === 'close' ? 'closing its console' : `${key} in its console`;
    await steps.step(`${what} lets connections drain`, async () => {
      const proxy = wine.start(String.raw`${FOLDER}\winuserspace.exe`, [
        'file',
        '-i',
        String.raw`${FOLDER}\state.yaml`,
        ...'to-local to-userspace --portal address --portal-interface= --admin-socket='.split(' '),
        ...'--metrics-bind-address= --healthz-bind-address= --drain-timeout 1h'.split(' '),
        ...flags,
      ]);
      await proxy.said(/The first complete state is in place/);
      await drains(namespace, '127.0.0.1', PORT, async () => {
        proxy.press(key);
        await proxy.said(new RegExp(`"signal":"${signal}","msg":"Stopping"`));
        await proxy.said(/"msg":"Waiting for connections to end"/);
      });
      equal(await proxy.code, 0);
      match(proxy.text, /"msg":"Stopped"/);
      // Windows ends a program five seconds after its console was closed.
      match(proxy.text, key === 'close' ? /"cutIn":"(?:4s|3\.9)/ : /"cutIn":"(?:1h|59m59)/);
      return proxy.text
        .split('\n')
        .filter((line) => /"msg":"(?:Stop|Waiting|Cutting)/.test(line))
        .join('\n');
    });
  }

  await steps.step('the lines for NSSM on the page make a service that runs', async () => {
    const page = await readFile(join(ROOT, 'docs/how-to/windows.md'), 'utf8');
    const lines = /```bat\n(nssm install [^`]*)```/.exec(page)?.[1] ?? '';
    const script = String.raw`${FOLDER}\lines.bat`;
    const all = ['@cd /d %~dp0', ...lines.trimEnd().split('\n'), 'nssm start kpng', ''];
    await writeFile(wine.hostPath(script), all.join('\r\n'));
    const cmd = String.raw`C:\windows\system32\cmd.exe`;
    const { stdout, stderr } = await wine.run(cmd, ['/c', script]);
    const program = String.raw`${FOLDER}\kpng.exe`;
    const status = await wine.run(program, ['service', 'status', '--name', 'kpng']);
    equal(status.stdout.trim(), 'running', stdout + stderr);
    const listeners = () => inside(namespace, 'ss', '-Hltn', 'sport = :12090');
    await becomes('listening', async () => (await listeners()) !== '');
    await wine.run(program, ['service', 'uninstall', '--name', 'kpng']);
    return lines;
  });
}
