import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { startLoggedServer, type LoggedServerOptions } from '../observe/servers.ts';
import { bundledText } from '../util/bundle.ts';
import { formatHostPort, isLoopback, type HostPort } from '../util/host-port.ts';
import type { HttpResponse, HttpRequest } from '../util/http-connections.ts';
import type { HttpServer } from '../util/http-server.ts';
import { failure } from './handler.ts';
import { isLocalName } from './socket-path.ts';
import type { ProcessSubject } from './subject.ts';

/** The modules of the page, each after those that it imports from. */
export const PAGE_SCRIPTS = [
  'dom.js',
  'format.js',
  'plot.js',
  'head.js',
  'rows.js',
  'details.js',
  'main.js',
] as const;

export const PAGE_FILES = ['page.html', 'style.css', ...PAGE_SCRIPTS] as const;

let made: HttpResponse | undefined;

/** The status page, at the root; undefined for any other path. Built once. */
export function answerPage({
  path,
  method,
}: Pick<HttpRequest, 'path' | 'method'>): HttpResponse | undefined {
  if (path !== '/' || (method !== 'GET' && method !== 'HEAD')) return undefined;
  made ??= makePage();
  return made;
}

function readPageFile(name: string): string {
  const inside = bundledText(`status-page/${name}`);
  if (inside !== undefined) return inside;
  // The same relative path from dist/admin and from src/admin.
  return readFileSync(new URL(`../../assets/status-page/${name}`, import.meta.url), 'utf8');
}

/**
 * One document with everything in it, and a content security policy that allows only this script and this style (by
 * hash) and requests to its own origin.
 */
function makePage(): HttpResponse {
  const style = readPageFile('style.css');
  const script = PAGE_SCRIPTS.map((name) => withoutImports(readPageFile(name))).join('\n');
  const body = readPageFile('page.html')
    .replace('<style></style>', () => `<style>${style}</style>`)
    .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`);
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(script)}'`,
    `style-src '${hashOf(style)}'`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ];
  return {
    status: 200,
    type: 'text/html; charset=utf-8',
    body,
    headers: {
      'content-security-policy': policy.join('; '),
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    },
  };
}

/** A module without its imports and exports, for one script in which all share a scope. */
function withoutImports(module: string): string {
  return module
    .replace(/^import [^;]*;\n/gm, '')
    .replace(/^export (?=async |function |const |let |class )/gm, '');
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}

/**
 * Serves the status page and its data over TCP, read-only. An empty host means the loopback interface: other clients need
 * an explicit address.
 */
export function startPageServer(
  address: HostPort,
  { log, clock }: Pick<ProcessSubject, 'log' | 'clock'>,
  options: Pick<LoggedServerOptions, 'answer' | 'activation'>,
): HttpServer {
  const host = address.host === '' ? '127.0.0.1' : address.host;
  const isPrivate = isLoopback(host);
  return startLoggedServer({
    what: 'the status page',
    log,
    address: { host, port: address.port },
    clock,
    ...options,
    async answer(request) {
      const { host: asked = '' } = request.headers;
      // With DNS rebinding, a page of another site could read the data.
      if (isPrivate && !isLocalName(asked)) {
        return failure(421, 'KPNG_ADMIN_REFUSED', `${asked} is not the name of this host`);
      }
      return options.answer(request);
    },
    onListening(bound) {
      if (isPrivate) return;
      log.warn(
        'Status page has no authentication; any client that reaches the address can read it',
        { address: formatHostPort(bound) },
      );
    },
  });
}
