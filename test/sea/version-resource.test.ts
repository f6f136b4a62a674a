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
  const { count, strings, info } = read(withVersion(first, '1.22.333'));
  t.equal(count, 1, 'the previous one is replaced');
  t.match(strings, {
    ProductName: 'kpng-userspace',
    FileVersion: '1.22.333',
    ProductVersion: '1.22.333',
  });
  t.equal(info?.fixedInfo.fileVersionMS, (1 << 16) + 22);
  t.equal(info?.fixedInfo.fileVersionLS, 333 << 16);
});

t.test('a version that is a preview has its numbers', async (t) => {
  const { info, strings } = read(withVersion(empty(), '2.0.1-rc.1'));
  t.equal(info?.fixedInfo.fileVersionMS, 2 << 16);
  t.equal(info?.fixedInfo.fileVersionLS, 1 << 16);
  t.equal(strings?.['FileVersion'], '2.0.1-rc.1');
});
