import { isIP } from 'node:net';
import { DomainError } from '../runtime/errors.ts';
import type { AddressRefused } from '../upstream/addresses.ts';
import { PrivateHosts } from '../upstream/private-hosts.ts';
import { maxUrlLength } from './webhook.ts';

/** The receivers that webhooks may call: public ones, and the private ones of the setting `webhooks.allow`. */
export class Receivers extends PrivateHosts {
  constructor(allow: readonly string[]) {
    super(
      allow,
      'the receiver has an address that is not allowed; the setting webhooks.allow can allow private receivers',
    );
  }

  /** The URL of a webhook, normalized; throws `Invalid`. Names are resolved and checked when a delivery connects. */
  parse(text: string): string {
    const url = URL.parse(text);
    if (!url || !/^https?:$/.test(url.protocol)) throw invalid('expected an http or https URL');
    if (url.username !== '' || url.password !== '') throw invalid('a user name or password is not allowed');
    url.hash = '';
    if (url.href.length > maxUrlLength) throw invalid(`expected at most ${maxUrlLength} characters`);
    const host = url.hostname.replace(/^\[|\]$/g, '');
    try {
      if (isIP(host)) this.check(host, host);
    } catch (error) {
      throw invalid((error as AddressRefused).message);
    }
    return url.href;
  }
}

function invalid(message: string): DomainError {
  const errors = [{ field: 'url', message: `${message}.` }];
  return new DomainError('Invalid', `url: ${message}.`, { detail: { parameter: 'url', errors } });
}
