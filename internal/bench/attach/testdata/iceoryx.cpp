// iceoryx ROLE SIZE COUNT: half of the round trip of messages between two processes over iceoryx. ROLE is ping or
// pong. Both poll. ping prints the median and the 99th percentile in nanoseconds.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "iceoryx_posh/popo/untyped_publisher.hpp"
#include "iceoryx_posh/popo/untyped_subscriber.hpp"
#include "iceoryx_posh/runtime/posh_runtime.hpp"

using Clock = std::chrono::steady_clock;

int main(int argc, char** argv)
{
    if (argc != 4) {
        std::fprintf(stderr, "usage: iceoryx ping|pong SIZE COUNT\n");
        return 2;
    }
    const bool ping = std::string(argv[1]) == "ping";
    const auto size = static_cast<uint32_t>(std::atoi(argv[2]));
    const int count = std::atoi(argv[3]), warm = 1000;

    iox::runtime::PoshRuntime::initRuntime(iox::RuntimeName_t(iox::cxx::TruncateToCapacity, argv[1]));
    iox::popo::PublisherOptions out;
    iox::popo::SubscriberOptions in;
    in.queueCapacity = 8;
    const auto service = [](const char* way) {
        return iox::capro::ServiceDescription("bench", "latency", iox::capro::IdString_t(iox::cxx::TruncateToCapacity, way));
    };
    iox::popo::UntypedPublisher publisher(service(ping ? "there" : "back"), out);
    iox::popo::UntypedSubscriber subscriber(service(ping ? "back" : "there"), in);
    while (!publisher.hasSubscribers() || subscriber.getSubscriptionState() != iox::SubscribeState::SUBSCRIBED)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));

    std::vector<char> message(size, 'x'), got(size);
    const auto send = [&](const char* bytes) {
        publisher.loan(size)
            .and_then([&](void* to) {
                std::memcpy(to, bytes, size);
                publisher.publish(to);
            })
            .or_else([](auto&) { std::abort(); });
    };
    const auto receive = [&] {
        for (bool done = false; !done;)
            subscriber.take().and_then([&](const void* from) {
                std::memcpy(got.data(), from, size);
                subscriber.release(from);
                done = true;
            });
    };
    std::vector<int64_t> times;
    times.reserve(count);
    for (int i = 0; i < warm + count; i++) {
        if (!ping) {
            receive();
            send(got.data());
            continue;
        }
        const auto begun = Clock::now();
        send(message.data());
        receive();
        if (i >= warm)
            times.push_back(std::chrono::nanoseconds(Clock::now() - begun).count() / 2);
    }
    if (ping) {
        std::sort(times.begin(), times.end());
        std::printf("%lld %lld\n", static_cast<long long>(times[count / 2]), static_cast<long long>(times[count * 99 / 100]));
    }
    return 0;
}
