import { DEFAULT_API, parseTarget, type Target } from '../../client/target.ts';
import type { TlsFiles } from '../../util/tls-files.ts';
import { KpngError } from '../../errors.ts';
import { size, text } from './kinds.ts';
import { flag, group, type FlagValues } from './table.ts';

const GROUP = 'Source: api, local';

/** Flags of the sources that are clients of a kpng server. */
export const API_FLAGS = group(GROUP, {
  api: flag(
    text('target'),
    DEFAULT_API,
    'The server: host:port, dns:///host:port, unix:path or unix:///absolute/path.',
  ),
  'api-client-tls-crt': flag(text('path'), '', 'PEM file with the client certificate.', {
    aliases: ['tls-crt'],
  }),
  'api-client-tls-key': flag(text('path'), '', 'PEM file with the key of that certificate.', {
    aliases: ['tls-key'],
  }),
  'api-client-tls-ca': flag(
    text('path'),
    '',
    'PEM file with the trusted authorities, in place of those of the system.',
    { aliases: ['tls-ca'] },
  ),
  'max-msg-size': flag(
    size(1024, 2 ** 31 - 1),
    4 * 1024 * 1024,
    'Largest message accepted from the server.',
  ),
});

export interface ApiOptions {
  readonly target: Target;
  readonly tls: TlsFiles;
  readonly maxMessageSize: number;
}

/** What the flags ask for; throws a usage error. */
export function apiOptions(values: FlagValues<typeof API_FLAGS>): ApiOptions {
  const { 'api-client-tls-crt': crt, 'api-client-tls-key': key } = values;
  if ((crt === '') !== (key === '')) {
    throw new KpngError(
      'KPNG_USAGE',
      '--api-client-tls-crt and --api-client-tls-key: give both or neither',
    );
  }
  return {
    target: parseTarget(values.api),
    tls: { crt, key, ca: values['api-client-tls-ca'] },
    maxMessageSize: values['max-msg-size'],
  };
}
