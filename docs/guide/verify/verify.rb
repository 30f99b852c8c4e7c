# ruby verify.rb SECRET ID TIMESTAMP SIGNATURE < body
require "openssl"

TOLERANCE = 5 * 60 # seconds

# Whether the gateway that knows `secret` sent `body`, and not long ago.
def verify(secret, id, timestamp, signature, body)
  return false unless timestamp.match?(/\A\d+\z/)
  return false if (Time.now.to_i - timestamp.to_i).abs > TOLERANCE

  key = secret.delete_prefix("whsec_").unpack1("m")
  signed = "#{id}.#{timestamp}.".b + body.b
  expected = "v1," + [OpenSSL::HMAC.digest("SHA256", key, signed)].pack("m0")
  # While a secret is being rotated there are several, with spaces between.
  signature.split(" ").any? do |candidate|
    candidate.bytesize == expected.bytesize &&
      OpenSSL.fixed_length_secure_compare(candidate, expected)
  end
end

exit(verify(*ARGV.first(4), $stdin.binmode.read) ? 0 : 1) if $PROGRAM_NAME == __FILE__
