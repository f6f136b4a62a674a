import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parse } from '../../src/cli/parse.ts';
import { problemsOf as commandProblems } from '../support/markdown.ts';

const folder = join(import.meta.dirname, '..', '..', 'deploy', 'windows');

t.test('install.ps1 gives the programs command lines that they understand', async (t) => {
  const script = readFileSync(join(folder, 'install.ps1'), 'utf8');
  t.match(script, `@('kube', '--kubeconfig', $KubeConfig, 'to-api')`);
  t.equal(parse(['kube', '--kubeconfig', String.raw`C:\k\config`, 'to-api']).kind, 'run');
  t.match(script, `@('local', 'to-winuserspace', '--node-name', $NodeName, "-v=$Verbosity")`);
  t.equal(parse(['local', 'to-winuserspace', '--node-name', 'node-1', '-v=2']).kind, 'run');
  t.notMatch(script, /Invoke-Expression|iex /i, 'nothing is put together as text and run');

  const values: Readonly<Record<string, string>> = {
    $KubeConfig: String.raw`C:\k\config`,
    $NodeName: 'node-1',
    $Verbosity: '2',
    $Interface: 'kpng0',
    $name: 'kpng',
  };
  // Each `@('…', $Variable)` of the script that begins a command line, or continues with one.
  const lists = [...script.matchAll(/@\(('[^()]*)\)/g)].map(([, list = '']) =>
    list
      .split(', ')
      .map((item) => item.replaceAll(/^['"]|['"]$/g, ''))
      .map((item) => item.replaceAll(/\$\w+/g, (name) => values[name] ?? `?${name}`))
      .join(' '),
  );
  const lines = lists
    .filter((list) => /^(?:service|cleanup) /.test(list))
    .map((list) => {
      if (!list.includes(' install ')) return list;
      const isController = list.includes('--name kpng');
      const rest = lists.find((each) => each.startsWith(isController ? 'kube ' : 'local '));
      const extra = isController ? '' : `${lists.find((each) => each.startsWith('--env '))} -- `;
      return `${list} ${extra}${rest}`;
    });
  t.same(lines, [
    'service uninstall --name winuserspace',
    'service uninstall --name kpng',
    'cleanup --portal-interface=kpng0',
    String.raw`service install --name kpng -- kube --kubeconfig C:\k\config to-api`,
    'service install --name winuserspace --depends-on kpng --env INTERFACE_TO_ADD_SERVICE_IP=kpng0 ' +
      '-- local to-winuserspace --node-name node-1 -v=2',
    'service stop --name kpng',
    'service start --name kpng',
  ]);
  for (const line of lines) t.same(commandProblems(`kpng ${line}`), []);
});
