import { NtExecutable, NtExecutableResource, Resource } from 'resedit';
import t from 'tap';
import { withVersion } from '../../tools/sea/version-resource.ts';

const ENGLISH = { lang: 1033, codepage: 1200 } as const;

function empty(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(NtExecutable.createEmpty(false).generate());
}

function read(program: Uint8Array<ArrayBuffer>) {
  const resources = NtExecutableResource.from(NtExecutable.from(program));
  const infos = Resource.VersionInfo.fromEntries(resources.entries);
  return { count: infos.length, strings: infos[0]?.getStringValues(ENGLISH), info: infos[0] };
}

t.test('Windows shows the version of the program, not that of Node', async (t) => {
  const first = withVersion(empty(), '0.1.0');
  for (const [version, ms, ls] of [
    ['1.22.333', (1 << 16) + 22, 333 << 16],
    ['2.0.1-rc.1', 2 << 16, 1 << 16],
  ] as const) {
    const { count, strings, info } = read(withVersion(first, version));
    t.equal(count, 1, 'the previous one is replaced');
    const versions = { FileVersion: version, ProductVersion: version };
    t.match(strings, { ProductName: 'kpng-userspace', ...versions });
    t.equal(info?.fixedInfo.fileVersionMS, ms);
    t.equal(info?.fixedInfo.fileVersionLS, ls);
  }
});
