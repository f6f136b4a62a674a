/** What Windows shows of an executable: its version, what it is and whose. */
import { NtExecutable, NtExecutableResource, Resource } from 'resedit';

const ENGLISH = { lang: 1033, codepage: 1200 } as const;

/**
 * The program of Node with our version in place of its own, and without Node's signature, which would not fit
 * any more. The result has to be signed by its publisher.
 */
export function withVersion(
  program: Uint8Array<ArrayBuffer>,
  version: string,
): Uint8Array<ArrayBuffer> {
  const executable = NtExecutable.from(program, { ignoreCert: true });
  const resources = NtExecutableResource.from(executable);
  const [found] = Resource.VersionInfo.fromEntries(resources.entries);
  const info = found ?? Resource.VersionInfo.createEmpty();
  for (const language of info.getAllLanguagesForStringValues()) {
    info.removeAllStringValues(language);
  }
  const [major = 0, minor = 0, patch = 0] = version.split(/[.-]/).map(Number);
  info.setFileVersion(major, minor, patch, 0, ENGLISH.lang);
  info.setProductVersion(major, minor, patch, 0, ENGLISH.lang);
  info.setStringValues(ENGLISH, {
    ProductName: 'kpng-userspace',
    FileDescription: 'Userspace proxy for Kubernetes Services',
    InternalName: 'kpng-userspace',
    FileVersion: version,
    ProductVersion: version,
    LegalCopyright: 'Apache License 2.0; parts: see LICENSES.txt',
  });
  info.outputToResourceEntries(resources.entries);
  resources.outputResource(executable);
  return new Uint8Array(executable.generate());
}
