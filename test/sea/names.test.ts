import t from 'tap';
import { argumentsFor } from '../../tools/sea/names.ts';

t.test('the name of the file chooses what it is', async (t) => {
  const cases: readonly [string, string, string][] = [
    [String.raw`C:\Program Files\kpng\winuserspace.exe`, '-v=4', 'local to-winuserspace -v=4'],
    [String.raw`C:\k\WinUserspace.EXE`, '', 'local to-winuserspace'],
    [String.raw`C:\k\winuserspace.exe`, 'version', 'version'],
    [String.raw`C:\k\kpng.exe`, 'kube to-api', 'kube to-api'],
    ['/usr/local/bin/kpng-json', '--node-name=a', 'local to-json --node-name=a'],
    ['/usr/local/bin/kpng-userspace', 'version', 'version'],
    ['/tmp/kpng-userspace-1.2.3', 'file to-json', 'file to-json'],
    ['/tmp/constructor', '-v', '-v'],
  ];
  for (const [path, given, expected] of cases) {
    const args = given.split(' ').filter((arg) => arg !== '');
    t.equal(argumentsFor(path, args).join(' '), expected, path);
  }
});
